{{/* The data folder and the models on a claim are one folder a node: an agent owns its data folder. */}}
{{- define "xgen-model.volumeMounts" -}}
{{- $values := .Values -}}
- name: data
  mountPath: /var/lib/xgen-model
  {{- if eq $values.storage.data.type "claim" }}
  subPathExpr: $(NODE_NAME)
  {{- end }}
- name: models
  mountPath: /app/models
- name: shm
  mountPath: /dev/shm
- name: tmp
  mountPath: /tmp
{{- if eq $values.manifest.source "mount" }}
# The whole volume, never a subPath, which kubelet does not update.
- name: manifest
  mountPath: /etc/xgen-model/manifest
  readOnly: true
{{- end }}
{{- if include "xgen-model.gitFiles" . | fromJson }}
- name: git
  mountPath: /etc/xgen-model/git
  readOnly: true
{{- end }}
{{- if $values.cluster.existingSecret }}
- name: cluster
  mountPath: /etc/xgen-model/cluster
  readOnly: true
{{- end }}
{{- if or $values.trustedCA.configMap $values.trustedCA.secret }}
- name: ca
  mountPath: /etc/xgen-model/ca
  readOnly: true
{{- end }}
{{- if $values.hub.volume }}
- name: hub
  mountPath: {{ $values.hub.location }}
  readOnly: true
{{- end }}
{{- range $index, $device := include "xgen-model.hostDevices" . | default "[]" | fromJsonArray }}
- name: device-{{ $index }}
  mountPath: {{ $device }}
{{- end }}
{{- with $values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "xgen-model.volumes" -}}
{{- $values := .Values -}}
{{- range $name := list "data" "models" }}
- name: {{ $name }}
  {{- include "xgen-model.storage" (get $values.storage $name) | nindent 2 }}
{{- end }}
- name: shm
  emptyDir:
    medium: Memory
    {{- with $values.storage.shm.sizeLimit }}
    sizeLimit: {{ . }}
    {{- end }}
- name: tmp
  {{- if $values.storage.tmp.sizeLimit }}
  emptyDir:
    sizeLimit: {{ $values.storage.tmp.sizeLimit }}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- if eq $values.manifest.source "mount" }}
- name: manifest
  configMap:
    name: {{ include "xgen-model.manifestName" . }}
    # Without it a pod starts all the same, and goes on with the last good manifest of its data folder.
    optional: true
{{- end }}
{{- with include "xgen-model.gitFiles" . | fromJson }}
- name: git
  secret:
    secretName: {{ $values.manifest.git.existingSecret }}
    defaultMode: {{ include "xgen-model.secretMode" $ }}
    items:
      {{- range $key := values . | uniq | sortAlpha }}
      - key: {{ $key }}
        path: {{ $key }}
      {{- end }}
{{- end }}
{{- with $values.cluster.existingSecret }}
- name: cluster
  secret:
    secretName: {{ . }}
    defaultMode: {{ include "xgen-model.secretMode" $ }}
    items:
      - key: {{ $values.cluster.secretKey }}
        path: token
{{- end }}
{{- with $values.trustedCA }}
{{- if or .configMap .secret }}
- name: ca
  {{- if .configMap }}
  configMap:
    name: {{ .configMap }}
  {{- else }}
  secret:
    secretName: {{ .secret }}
  {{- end }}
    items:
      - key: {{ .key }}
        path: ca.crt
{{- end }}
{{- end }}
{{- with $values.hub.volume }}
- name: hub
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $index, $device := include "xgen-model.hostDevices" . | default "[]" | fromJsonArray }}
- name: device-{{ $index }}
  hostPath:
    path: {{ $device }}
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of files that kubelet makes as root's and the fsGroup's: as few as can read them, the agent among
these. ssh refuses a key of its own user that others may read, and takes one of root's. */}}
{{- define "xgen-model.secretMode" -}}
{{- if eq (include "xgen-model.user" .) "0" -}}0400
{{- else if kindIs "invalid" .Values.podSecurityContext.fsGroup -}}0444
{{- else -}}0440
{{- end -}}
{{- end -}}

{{/* One folder's volume source. */}}
{{- define "xgen-model.storage" -}}
{{- if eq .type "hostPath" -}}
hostPath:
  path: {{ .path }}
  type: DirectoryOrCreate
{{- else if eq .type "claim" -}}
persistentVolumeClaim:
  claimName: {{ .existingClaim }}
{{- else if .sizeLimit -}}
emptyDir:
  sizeLimit: {{ .sizeLimit }}
{{- else -}}
emptyDir: {}
{{- end -}}
{{- end -}}
