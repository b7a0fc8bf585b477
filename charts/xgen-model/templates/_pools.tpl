{{/* Lay the map `over` upon `base`, in place: (list base over). Maps are merged, all else replaces,
null takes away; what is a map of Kubernetes' or of labels to select by replaces as a whole. */}}
{{- define "xgen-model.overlay" -}}
{{- $base := index . 0 -}}
{{- $whole := list "nodeSelector" "affinity" "resources" "updateStrategy" "volume" -}}
{{- range $key, $value := index . 1 -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $base $key)) (not (has $key $whole)) -}}
{{- include "xgen-model.overlay" (list (get $base $key) $value) -}}
{{- else if kindIs "invalid" $value -}}
{{- $_ := unset $base $key -}}
{{- else -}}
{{- $_ := set $base $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The pools of a release into `into.pools`: (dict "root" $ "into" dict). Each is a context of its
own: the root's, with the pool's values, `pool` its name and `workload` the name of its workload. */}}
{{- define "xgen-model.pools" -}}
{{- $root := .root -}}
{{- $fullname := include "xgen-model.fullname" $root -}}
{{- $found := list -}}
{{- $common := dict "Chart" $root.Chart "Release" $root.Release "Capabilities" $root.Capabilities -}}
{{- range $name, $own := $root.Values.pools -}}
{{- $values := deepCopy (omit $root.Values "pools") -}}
{{- include "xgen-model.overlay" (list $values (dict "workloadKind" "DaemonSet")) -}}
{{- include "xgen-model.overlay" (list $values (deepCopy ($own | default dict))) -}}
{{- $found = append $found (merge (dict "Values" $values "pool" $name "workload" (printf "%s-%s" $fullname $name)) $common) -}}
{{- end -}}
{{- if not $found -}}
{{- $found = list (merge (dict "Values" $root.Values "pool" "default" "workload" $fullname) $common) -}}
{{- end -}}
{{- range $found -}}
{{- include "xgen-model.checkPool" . -}}
{{- end -}}
{{- include "xgen-model.checkImages" $found -}}
{{- $_ := set .into "pools" $found -}}
{{- end -}}

{{/* A pool's pods, and no others. */}}
{{- define "xgen-model.poolLabels" -}}
{{ include "xgen-model.selectorLabels" . }}
xgen.io/pool: {{ .pool }}
{{- end -}}
