{{/* A duration of a manifest (90, 90s, 30m, 1h, 2d) in whole seconds; nothing where it is none. */}}
{{- define "xgen-model.seconds" -}}
{{- $text := toString . -}}
{{- if regexMatch "^[0-9]+([.][0-9]+)?[smhd]?$" $text -}}
{{- $unit := regexFind "[smhd]$" $text -}}
{{- mulf (trimSuffix $unit $text | float64) (get (dict "" 1 "s" 1 "m" 60 "h" 3600 "d" 86400) $unit) | ceil | int -}}
{{- end -}}
{{- end -}}

{{/* What stands under `timeouts`, as JSON; nothing where that is no map. */}}
{{- define "xgen-model.timeoutsOf" -}}
{{- $found := dict -}}
{{- if kindIs "map" . -}}{{- if kindIs "map" .timeouts -}}{{- $found = .timeouts -}}{{- end -}}{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* Models in the values' own manifest whose end takes longer than any pod has: (dict "root" $ "pools"
list). A manifest that is kept elsewhere cannot be seen here. */}}
{{- define "xgen-model.checkTimeouts" -}}
{{- $longest := 0 -}}
{{- $pool := first .pools -}}
{{- range .pools -}}
{{- $grace := include "xgen-model.graceSeconds" . | int -}}
{{- if gt $grace $longest -}}{{- $longest = $grace -}}{{- $pool = . -}}{{- end -}}
{{- end -}}
{{- range $file, $content := .root.Values.manifest.files -}}
{{- $documents := kindIs "string" $content | ternary (regexSplit "(?m)^---" (toString $content) -1) (list (toYaml $content)) -}}
{{- range $text := $documents -}}
{{- $spec := (fromYaml $text).spec -}}
{{- if kindIs "map" $spec -}}
{{- $common := include "xgen-model.timeoutsOf" $spec.defaults | fromJson -}}
{{- range $model := kindIs "slice" $spec.models | ternary $spec.models list -}}
{{- $written := include "xgen-model.timeoutsOf" $model | fromJson -}}
{{- $own := dict "preStopSeconds" $pool.Values.shutdown.preStopSeconds -}}
{{- range $step, $usual := dict "drain" "60" "stop" "15" "kill" "10" -}}
{{- $said := get $written $step | default (get $common $step) | default $usual -}}
{{- $_ := set $own (printf "%sSeconds" $step) (include "xgen-model.seconds" $said | default $usual | int) -}}
{{- end -}}
{{- $needed := include "xgen-model.neededGraceSeconds" (dict "Values" (dict "shutdown" $own)) | int -}}
{{- if gt $needed $longest -}}
{{- fail (printf "manifest.files %s: with its timeouts, %s may take %d s to end, and a pod has %d: raise shutdown.drainSeconds, stopSeconds or killSeconds" $file (toString $model.name) $needed $longest) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
