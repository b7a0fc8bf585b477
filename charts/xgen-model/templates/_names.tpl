{{/* The name of a release's objects, at most 40 characters, so that pools and suffixes fit into 63. */}}
{{- define "xgen-model.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- end -}}
{{- if gt (len $name) 40 -}}
{{/* Cut, and told apart: two long names may begin alike. */}}
{{- printf "%s-%s" (trunc 31 $name | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end -}}

{{- define "xgen-model.peersName" -}}
{{- printf "%s-peers" (include "xgen-model.fullname" .) -}}
{{- end -}}

{{/* What a Service, a NetworkPolicy and the anti-affinity select: all agents of the release. Nothing
that a value may change stands in it, for a workload's selector can never be changed. */}}
{{- define "xgen-model.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end -}}

{{/* Of objects: without the component, which is said where there is one. */}}
{{- define "xgen-model.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: xgen-model
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "xgen-model.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "xgen-model.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The ConfigMap of the manifest, whoever keeps it. */}}
{{- define "xgen-model.manifestName" -}}
{{- .Values.manifest.existingConfigMap | default (printf "%s-manifest" (include "xgen-model.fullname" .)) -}}
{{- end -}}

{{- define "xgen-model.manifestNamespace" -}}
{{- .Values.manifest.namespace | default .Release.Namespace -}}
{{- end -}}

{{- define "xgen-model.variant" -}}
{{- .Values.image.variant | default (get (dict "nvidia" "vllm-cuda" "amd" "vllm-rocm" "none" "cpu") .Values.gpu.vendor) -}}
{{- end -}}

{{/* One image, for the agent and what prepares its folders. */}}
{{- define "xgen-model.image" -}}
{{- $image := .Values.image -}}
{{- $name := empty $image.registry | ternary $image.repository (printf "%s/%s" $image.registry $image.repository) -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($image.tag | default (printf "%s-%s" .Chart.AppVersion (include "xgen-model.variant" .))) -}}
{{- end -}}
{{- end -}}

{{/* In another namespace it says whose it is: two releases of one name may read there. */}}
{{- define "xgen-model.roleName" -}}
{{- $name := printf "%s-manifest" (include "xgen-model.fullname" .) -}}
{{- if eq (include "xgen-model.manifestNamespace" .) .Release.Namespace -}}
{{- $name -}}
{{- else -}}
{{- printf "%s-%s" $name (sha256sum .Release.Namespace | trunc 8) -}}
{{- end -}}
{{- end -}}
