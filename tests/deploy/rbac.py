"""Who may do what, by the Roles and bindings of a release."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.source.kubernetes_server import Asked

Object = dict[str, Any]


@dataclass(kw_only=True)
class Rights:
    """`objects`: of a release. `tokens`: whose they are, as pairs of namespace and account; who
    has another one may do all. `refused`: what was."""

    objects: Sequence[Object]
    tokens: dict[str, tuple[str, str]] = field(default_factory=dict)
    refused: list[Asked] = field(default_factory=list)

    def __call__(self, token: str, asked: Asked) -> bool:
        if token not in self.tokens:
            return True
        may = any(_allows(rule, asked) for rule in self._rules(self.tokens[token], asked.namespace))
        if not may:
            self.refused.append(asked)
        return may

    def _rules(self, account: tuple[str, str], namespace: str | None) -> list[Object]:
        """Those that the account has in the namespace."""
        bound = [each["roleRef"] for each in self._of("RoleBinding") if _binds(each, account)]
        return [
            rule
            for role in self._of("Role")
            if role["metadata"].get("namespace") == namespace
            and any(
                ref["kind"] == "Role" and ref["name"] == role["metadata"]["name"] for ref in bound
            )
            for rule in role["rules"]
        ]

    def _of(self, kind: str) -> list[Object]:
        return [each for each in self.objects if each["kind"] == kind]


def _binds(binding: Object, account: tuple[str, str]) -> bool:
    return any(
        subject["kind"] == "ServiceAccount" and (subject["namespace"], subject["name"]) == account
        for subject in binding["subjects"]
    )


def _allows(rule: Object, asked: Asked) -> bool:
    return (
        "" in rule["apiGroups"]
        and asked.resource in rule["resources"]
        and asked.verb in rule["verbs"]
        and ("resourceNames" not in rule or asked.name in rule["resourceNames"])
    )
