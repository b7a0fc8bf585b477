"""How a ConfigMap is named, and what is said to who names it otherwise."""

import pytest

from reconciler.errors import Rejected
from reconciler.source.kubernetes_address import is_config_map, parse_config_map
from reconciler.source.kubernetes_role import role, subject_of


def test_names_a_namespace_and_a_config_map() -> None:
    address = parse_config_map("configmap://models/prod.models-1")
    assert (address.namespace, address.name) == ("models", "prod.models-1")
    assert address.shown == "configmap://models/prod.models-1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("configmap://models", "configmap://models is not configmap://NAMESPACE/NAME"),
        ("configmap://models/", "is not configmap://NAMESPACE/NAME"),
        ("configmap:///models", "is not configmap://NAMESPACE/NAME"),
        ("configmap://a/b/c", "is not configmap://NAMESPACE/NAME"),
        ("ConfigMap://a/b", "is not configmap://NAMESPACE/NAME"),
        ("configmap://A/b", "'A' can be no namespace"),
        ("configmap://a.b/c", "'a.b' can be no namespace"),
        ("configmap://a/b?x=1", "'b?x=1' can be no ConfigMap's name"),
        ("configmap://a/..", "'..' can be no ConfigMap's name"),
        (f"configmap://a/{'b.' * 127}b", "can be no ConfigMap's name"),
        ("configmap://a/\x1b[2J", r"'\\x1b[2J' can be no ConfigMap's name"),
    ],
)
def test_says_how_it_should_be_written(text: str, said: str) -> None:
    assert is_config_map(text)
    with pytest.raises(Rejected) as caught:
        parse_config_map(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("refusal", "subject"),
    [
        (
            'configmaps is forbidden: User "system:serviceaccount:gpu:agent" cannot list',
            "{kind: ServiceAccount, name: agent, namespace: gpu}",
        ),
        (
            'configmaps is forbidden: User "ann@example.com" cannot list',
            '{kind: User, name: "ann@example.com", apiGroup: rbac.authorization.k8s.io}',
        ),
        ("Forbidden", "{kind: ServiceAccount, name: xgen-model, namespace: xgen-model}"),
    ],
)
def test_the_role_is_bound_to_whom_was_refused(refusal: str, subject: str) -> None:
    text = role(parse_config_map("configmap://models/prod"), subject=subject_of(refusal))
    assert text.endswith(f"subjects:\n  - {subject}\n")
    assert "resourceNames: [prod], verbs: [get, list, watch]" in text
