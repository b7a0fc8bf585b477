{{/* The pod of a pool. Whatever changes here starts all its models anew. So neither a checksum of the
ConfigMap stands in it, whose edits the agent takes up by itself, nor the chart's version. */}}
{{- define "xgen-model.podTemplate" -}}
{{- $values := .Values -}}
metadata:
  labels:
    {{- include "xgen-model.poolLabels" . | trim | nindent 4 }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  # A Service called VLLM would set VLLM_PORT, and end every vLLM.
  enableServiceLinks: false
  serviceAccountName: {{ include "xgen-model.serviceAccountName" . }}
  automountServiceAccountToken: {{ eq $values.manifest.source "api" }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.priorityClass.name }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with include "xgen-model.runtimeClassName" . }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with $values.schedulerName }}
  schedulerName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ include "xgen-model.graceSeconds" . }}
  securityContext:
    {{- toYaml $values.podSecurityContext | nindent 4 }}
  {{- with include "xgen-model.nodeSelector" . | fromJson }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  affinity:
    {{- include "xgen-model.affinity" . | nindent 4 }}
  {{- with $values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if or (include "xgen-model.ownedFolders" .) $values.initContainers }}
  initContainers:
    {{- if include "xgen-model.ownedFolders" . }}
    {{- include "xgen-model.permissions" . | nindent 4 }}
    {{- end }}
    {{- with $values.initContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    {{- include "xgen-model.container" . | nindent 4 }}
    {{- with $values.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "xgen-model.volumes" . | trim | nindent 4 }}
{{- end -}}

{{- define "xgen-model.container" -}}
{{- $values := .Values -}}
- name: agent
  image: {{ include "xgen-model.image" . }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  # What it said last is then in the pod's status.
  terminationMessagePolicy: FallbackToLogsOnError
  args:
    - run
    {{- with $values.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    {{- include "xgen-model.env" . | trim | nindent 4 }}
  {{- with $values.envFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - name: http
      containerPort: 8000
      protocol: TCP
  startupProbe:
    httpGet: {path: /healthz, port: http}
    {{- toYaml $values.probes.startup | nindent 4 }}
  readinessProbe:
    httpGet: {path: /readyz, port: http}
    {{- toYaml $values.probes.readiness | nindent 4 }}
  livenessProbe:
    httpGet: {path: /healthz, port: http}
    {{- toYaml $values.probes.liveness | nindent 4 }}
  {{- if $values.shutdown.preStopSeconds }}
  lifecycle:
    preStop:
      sleep:
        seconds: {{ $values.shutdown.preStopSeconds | int }}
  {{- end }}
  resources:
    {{- include "xgen-model.resources" . | nindent 4 }}
  securityContext:
    {{- include "xgen-model.securityContext" . | nindent 4 }}
  volumeMounts:
    {{- include "xgen-model.volumeMounts" . | trim | nindent 4 }}
{{- end -}}

{{/* The values', and the GPUs that a device plugin gives. */}}
{{- define "xgen-model.resources" -}}
{{- $resources := deepCopy (.Values.resources | default dict) -}}
{{- if eq .Values.gpu.mode "plugin" -}}
{{- $limits := $resources.limits | default dict -}}
{{- $_ := set $limits (include "xgen-model.gpuResource" .) (int .Values.gpu.count) -}}
{{- $_ := set $resources "limits" $limits -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/* As the values say; a privileged container cannot forbid the escalation of privileges. */}}
{{- define "xgen-model.securityContext" -}}
{{- $context := deepCopy .Values.securityContext -}}
{{- if $context.privileged -}}
{{- $_ := set $context "allowPrivilegeEscalation" true -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{- define "xgen-model.nodeSelector" -}}
{{- $selector := .Values.nodeSelector -}}
{{- if kindIs "invalid" $selector -}}
{{- $selector = eq .Values.gpu.vendor "none" | ternary dict (dict "gpu" .Values.gpu.vendor) -}}
{{- end -}}
{{- toJson $selector -}}
{{- end -}}

{{/* One agent of a release a host, whatever its pool: it owns the host's data folder and its GPUs. */}}
{{- define "xgen-model.affinity" -}}
{{- $affinity := deepCopy (.Values.affinity | default dict) -}}
{{- $anti := $affinity.podAntiAffinity | default dict -}}
{{- $ours := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "xgen-model.selectorLabels" . | fromYaml)) -}}
{{- $_ := set $anti "requiredDuringSchedulingIgnoredDuringExecution" (append ($anti.requiredDuringSchedulingIgnoredDuringExecution | default list) $ours) -}}
{{- $_ := set $affinity "podAntiAffinity" $anti -}}
{{- toYaml $affinity -}}
{{- end -}}

{{/* The folders that kubelet made as root's and the agent, another user, has to own. */}}
{{- define "xgen-model.ownedFolders" -}}
{{- $user := include "xgen-model.user" . -}}
{{- $folders := list -}}
{{- if and .Values.storage.permissions.fix $user (ne $user "0") -}}
{{- if eq .Values.storage.data.type "hostPath" -}}{{- $folders = append $folders "/var/lib/xgen-model" -}}{{- end -}}
{{- if eq .Values.storage.models.type "hostPath" -}}{{- $folders = append $folders "/app/models" -}}{{- end -}}
{{- end -}}
{{- join " " $folders -}}
{{- end -}}

{{/* fsGroup changes no hostPath, so root gives the folders away, with this one capability. */}}
{{- define "xgen-model.permissions" -}}
{{- $permissions := .Values.storage.permissions -}}
- name: permissions
  image: {{ include "xgen-model.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command:
    - chown
    {{- if $permissions.recursive }}
    - --recursive
    {{- end }}
    - --no-dereference
    - {{ printf "%s:%s" (include "xgen-model.user" .) (include "xgen-model.group" .) | quote }}
    {{- range splitList " " (include "xgen-model.ownedFolders" .) }}
    - {{ . }}
    {{- end }}
  securityContext:
    runAsUser: 0
    runAsNonRoot: false
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
      # To read folders of others, where it goes into them.
      add: [CHOWN{{ if $permissions.recursive }}, DAC_READ_SEARCH{{ end }}]
  # As the agent's, at no cost beside it: a quota, or the class Guaranteed, wants them of every container.
  resources:
    {{- toYaml (.Values.resources | default dict) | nindent 4 }}
  volumeMounts:
    {{- if eq .Values.storage.data.type "hostPath" }}
    - name: data
      mountPath: /var/lib/xgen-model
    {{- end }}
    {{- if eq .Values.storage.models.type "hostPath" }}
    - name: models
      mountPath: /app/models
    {{- end }}
{{- end -}}
