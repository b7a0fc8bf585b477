"""What an agent has to be allowed in a cluster to follow a ConfigMap (PURE)."""

import re

from reconciler.source.kubernetes_address import ConfigMapAddress

_ACCOUNT = re.compile(r'User "(?:system:serviceaccount:(?P<namespace>[^:"]+):)?(?P<name>[^"]+)"')
_ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: xgen-model-manifest, namespace: {namespace}}}
rules:
  # The agent lists and watches with fieldSelector metadata.name={name}, which asks for this one.
  - {{apiGroups: [""], resources: [configmaps], resourceNames: [{name}], verbs: [get, list, watch]}}
  # Only for Events that tell of a bad manifest; without it the agent says so once in its log.
  - {{apiGroups: [""], resources: [events], verbs: [create, patch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: xgen-model-manifest, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: xgen-model-manifest}}
subjects:
  - {subject}
"""
DEFAULT_SUBJECT = "{kind: ServiceAccount, name: xgen-model, namespace: xgen-model}"


def role(address: ConfigMapAddress, *, subject: str = DEFAULT_SUBJECT) -> str:
    """A Role and its binding, as YAML for kubectl apply. `subject`: as `subject_of` has it."""
    return _ROLE.format(namespace=address.namespace, name=address.name, subject=subject)


def subject_of(refusal: str) -> str:
    """Whom the API server has refused, by its own words."""
    found = _ACCOUNT.search(refusal)
    if found is None:
        return DEFAULT_SUBJECT
    if found["namespace"] is None:
        return f'{{kind: User, name: "{found["name"]}", apiGroup: rbac.authorization.k8s.io}}'
    return f"{{kind: ServiceAccount, name: {found['name']}, namespace: {found['namespace']}}}"
