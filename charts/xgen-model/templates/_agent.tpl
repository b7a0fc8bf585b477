{{/* What an agent is told: environment and mounts of its container. */}}

{{/* The number of the user that the pod runs as; empty: the image's. */}}
{{- define "xgen-model.user" -}}
{{- $user := .Values.securityContext.runAsUser -}}
{{- if kindIs "invalid" $user -}}{{- $user = .Values.podSecurityContext.runAsUser -}}{{- end -}}
{{- if not (kindIs "invalid" $user) -}}{{- int64 $user -}}{{- end -}}
{{- end -}}

{{/* The group's; where none is given, what the runtime takes: the image's of a user that it knows, or 0. */}}
{{- define "xgen-model.group" -}}
{{- $group := .Values.securityContext.runAsGroup -}}
{{- if kindIs "invalid" $group -}}{{- $group = .Values.podSecurityContext.runAsGroup -}}{{- end -}}
{{- if kindIs "invalid" $group -}}{{- $group = eq (include "xgen-model.user" .) "10001" | ternary 10001 0 -}}{{- end -}}
{{- int64 $group -}}
{{- end -}}

{{- define "xgen-model.runtimeClassName" -}}
{{- if kindIs "invalid" .Values.runtimeClassName -}}
{{- eq .Values.gpu.vendor "nvidia" | ternary "nvidia" "" -}}
{{- else -}}
{{- .Values.runtimeClassName -}}
{{- end -}}
{{- end -}}

{{/* AMD's devices, where neither a plugin nor a runtime brings them: as JSON, or nothing. */}}
{{- define "xgen-model.hostDevices" -}}
{{- $gpu := .Values.gpu -}}
{{- if and (eq $gpu.vendor "amd") (eq $gpu.mode "node") $gpu.hostDevices (not (include "xgen-model.runtimeClassName" .)) -}}
{{- toJson $gpu.hostDevices -}}
{{- end -}}
{{- end -}}

{{- define "xgen-model.gpuResource" -}}
{{- .Values.gpu.resourceName | default (printf "%s.com/gpu" .Values.gpu.vendor) -}}
{{- end -}}

{{/* preStop, drain (of a node's own answers, and 60 s of what passes through it), TERM, TERM to the
group, KILL, and room for an agent that a crash in the middle of it starts anew. */}}
{{- define "xgen-model.neededGraceSeconds" -}}
{{- $shutdown := .Values.shutdown -}}
{{- add $shutdown.preStopSeconds (max $shutdown.drainSeconds 60) $shutdown.stopSeconds 2 $shutdown.killSeconds 15 -}}
{{- end -}}

{{/* What a pod has. */}}
{{- define "xgen-model.graceSeconds" -}}
{{- .Values.shutdown.gracePeriodSeconds | default (include "xgen-model.neededGraceSeconds" .) | int -}}
{{- end -}}

{{- define "xgen-model.manifestPlace" -}}
{{- $manifest := .Values.manifest -}}
{{- if eq $manifest.source "mount" -}}
/etc/xgen-model/manifest
{{- else if eq $manifest.source "api" -}}
configmap://{{ include "xgen-model.manifestNamespace" . }}/{{ include "xgen-model.manifestName" . }}
{{- else -}}
{{- $query := list -}}
{{- with $manifest.git.ref -}}{{- $query = append $query (printf "ref=%s" (urlquery . | replace "+" "%20")) -}}{{- end -}}
{{- with $manifest.git.path -}}{{- $query = append $query (printf "path=%s" (urlquery . | replace "+" "%20")) -}}{{- end -}}
git+{{ $manifest.git.url }}{{ with $query }}?{{ join "&" . }}{{ end }}
{{- end -}}
{{- end -}}

{{/* Which keys of the git Secret are used, as JSON: {variable: key}. */}}
{{- define "xgen-model.gitFiles" -}}
{{- $files := dict -}}
{{- $git := .Values.manifest.git -}}
{{- if and (eq .Values.manifest.source "git") $git.existingSecret -}}
{{- $keys := $git.secretKeys -}}
{{- if hasPrefix "ssh://" $git.url -}}
{{- $_ := set $files "XGEN_GIT_SSH_KEY" $keys.sshKey -}}
{{- $_ := set $files "XGEN_GIT_KNOWN_HOSTS" $keys.knownHosts -}}
{{- else -}}
{{- $_ := set $files "XGEN_GIT_TOKEN_FILE" $keys.token -}}
{{- end -}}
{{- $_ := set $files "XGEN_GIT_ALLOWED_SIGNERS" $keys.allowedSigners -}}
{{- $_ := set $files "XGEN_GIT_WEBHOOK_SECRET_FILE" $keys.webhookSecret -}}
{{- end -}}
{{- range $name, $key := $files -}}
{{- if not $key -}}{{- $_ := unset $files $name -}}{{- end -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{/* The container's whole environment, as a list. */}}
{{- define "xgen-model.env" -}}
{{- $values := .Values -}}
{{- $own := dict
    "HOME" "/tmp"
    "XGEN_SUPERVISE" "true"
    "XGEN_LISTEN" (printf "%s:8000" $values.listenHost)
    "XGEN_DATA_DIR" "/var/lib/xgen-model"
    "XGEN_MODELS_DIR" "/app/models"
    "XGEN_MANIFEST" (include "xgen-model.manifestPlace" .)
    "XGEN_ON_EXIT" $values.onExit
    "XGEN_GPU_MODE" $values.gpu.mode
-}}
{{- range $field, $path := dict "NODE_NAME" "spec.nodeName" "POD_NAME" "metadata.name" "POD_IP" "status.podIP" -}}
{{- $_ := set $own $field (dict "valueFrom" (dict "fieldRef" (dict "apiVersion" "v1" "fieldPath" $path))) -}}
{{- end -}}
{{- with $values.hub.location -}}{{- $_ := set $own "XGEN_HUB" . -}}{{- end -}}
{{- with $values.hub.endpoint -}}{{- $_ := set $own "MINIO_ENDPOINT" . -}}{{- end -}}
{{- with $values.hub.region -}}{{- $_ := set $own "MINIO_REGION" . -}}{{- end -}}
{{- with $values.hub.existingSecret -}}
{{- $_ := set $own "MINIO_ACCESS_KEY" (dict "valueFrom" (dict "secretKeyRef" (dict "name" . "key" $values.hub.secretKeys.accessKey))) -}}
{{- $_ := set $own "MINIO_SECRET_KEY" (dict "valueFrom" (dict "secretKeyRef" (dict "name" . "key" $values.hub.secretKeys.secretKey))) -}}
{{- end -}}
{{- if $values.cluster.enabled -}}
{{- $_ := set $own "XGEN_PEERS" (printf "dns:%s.%s.svc.%s.:8000" (include "xgen-model.peersName" .) .Release.Namespace $values.cluster.domain) -}}
{{- end -}}
{{- if $values.cluster.existingSecret -}}{{- $_ := set $own "XGEN_CLUSTER_TOKEN_FILE" "/etc/xgen-model/cluster/token" -}}{{- end -}}
{{- range $name, $key := include "xgen-model.gitFiles" . | fromJson -}}
{{- $_ := set $own $name (printf "/etc/xgen-model/git/%s" $key) -}}
{{- end -}}
{{- if or $values.trustedCA.configMap $values.trustedCA.secret -}}{{- $_ := set $own "SSL_CERT_FILE" "/etc/xgen-model/ca/ca.crt" -}}{{- end -}}
{{- $gpu := $values.gpu -}}
{{- if eq $gpu.mode "node" -}}
{{- if eq $gpu.vendor "nvidia" -}}
{{- $_ := set $own "NVIDIA_VISIBLE_DEVICES" $gpu.visibleDevices -}}
{{- $_ := set $own "NVIDIA_DRIVER_CAPABILITIES" $gpu.driverCapabilities -}}
{{- else if and (eq $gpu.vendor "amd") (include "xgen-model.runtimeClassName" .) -}}
{{- $_ := set $own "AMD_VISIBLE_DEVICES" $gpu.visibleDevices -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := $values.settings -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $text := kindIs "slice" $value | ternary (eq $name "allowFileRoot" | ternary ":" " ") "" -}}
{{- $_ := set $own (printf "XGEN_%s" (snakecase $name | upper)) (kindIs "slice" $value | ternary (join $text (kindIs "slice" $value | ternary $value list)) $value) -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := $values.env -}}
{{- if hasKey $own $name -}}
{{- fail (printf "env.%s: the chart sets this variable itself; use the value that it comes from (README.md of the chart)" $name) -}}
{{- end -}}
{{- if not (kindIs "invalid" $value) -}}{{- $_ := set $own $name $value -}}{{- end -}}
{{- end -}}
{{- range $name, $value := $own }}
- name: {{ $name }}
  {{- if kindIs "map" $value }}
  {{- toYaml $value | nindent 2 }}
  {{- else }}
  value: {{ include "xgen-model.text" $value | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* A value as text; whole numbers without an exponent, as Go would write large ones. */}}
{{- define "xgen-model.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{- int64 . -}}{{- else -}}{{- . -}}{{- end -}}
{{- end -}}
