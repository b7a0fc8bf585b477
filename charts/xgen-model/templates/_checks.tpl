{{/* What the schema cannot say of a pool's values: each contradiction with what to do. */}}
{{- define "xgen-model.checkPool" -}}
{{- $at := eq .pool "default" | ternary "" (printf "pool %s: " .pool) -}}
{{- $values := .Values -}}
{{- if and (eq $values.workloadKind "Deployment") (eq $values.updateStrategy.type "OnDelete") -}}
{{- fail (printf "%supdateStrategy.type OnDelete is a DaemonSet's; a Deployment has RollingUpdate and Recreate" $at) -}}
{{- end -}}
{{- if and (eq $values.workloadKind "DaemonSet") (eq $values.updateStrategy.type "Recreate") -}}
{{- fail (printf "%supdateStrategy.type Recreate is a Deployment's; a DaemonSet has RollingUpdate and OnDelete" $at) -}}
{{- end -}}
{{- if and (eq $values.gpu.vendor "none") (eq $values.gpu.mode "plugin") -}}
{{- fail (printf "%sgpu.mode plugin asks a device plugin for GPUs, but gpu.vendor is none" $at) -}}
{{- end -}}
{{- if and (include "xgen-model.hostDevices" .) (not $values.securityContext.privileged) -}}
{{- fail (printf "%sAMD GPUs by host devices can be opened by privileged containers alone: set securityContext.privileged: true, or gpu.mode: plugin, or runtimeClassName: amd where AMD's container toolkit is installed" $at) -}}
{{- end -}}
{{- $pod := $values.podSecurityContext -}}
{{- $user := include "xgen-model.user" . -}}
{{- if and (eq $user "0") (or $pod.runAsNonRoot $values.securityContext.runAsNonRoot) -}}
{{- fail (printf "%sruns as user 0 and says runAsNonRoot: set podSecurityContext.runAsNonRoot: false, too" $at) -}}
{{- end -}}
{{- if and (eq $user "0") (hasKey $pod "fsGroup") (hasPrefix "ssh://" $values.manifest.git.url) -}}
{{- fail (printf "%sruns as user 0 with an fsGroup, which lets a group read the ssh key, and ssh refuses that: set podSecurityContext.fsGroup: null" $at) -}}
{{- end -}}
{{- range $name := list "data" "models" -}}
{{- $volume := get $values.storage $name -}}
{{- if and (eq $volume.type "claim") (not $volume.existingClaim) -}}
{{- fail (printf "%sstorage.%s.type is claim: name one in storage.%s.existingClaim" $at $name $name) -}}
{{- end -}}
{{- if and (ne $volume.type "claim") $volume.existingClaim -}}
{{- fail (printf "%sstorage.%s.existingClaim is %s, but its type is %s: set type: claim" $at $name $volume.existingClaim $volume.type) -}}
{{- end -}}
{{- end -}}
{{- $data := $values.storage.data -}}
{{- $models := $values.storage.models -}}
{{- if and (eq $data.type "hostPath") (eq $models.type "hostPath") (eq (clean $data.path) (clean $models.path)) -}}
{{- fail (printf "%sstorage.data and storage.models are one folder, %s: give each its own" $at $data.path) -}}
{{- end -}}
{{- with $values.shutdown.gracePeriodSeconds -}}
{{- $needed := include "xgen-model.neededGraceSeconds" $ | int -}}
{{- if lt (int .) $needed -}}
{{- fail (printf "%sshutdown.gracePeriodSeconds is %d: kubelet would kill in the middle of it; preStop, drain, stop and kill take %d" $at (int .) $needed) -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int $values.minReadySeconds) 0) (ge (int $values.minReadySeconds) (int $values.progressDeadlineSeconds)) -}}
{{- fail (printf "%sprogressDeadlineSeconds has to be greater than minReadySeconds" $at) -}}
{{- end -}}
{{- end -}}

{{/* One explicit tag or digest is one image, and has the engines of one variant: (list pool…). */}}
{{- define "xgen-model.checkImages" -}}
{{- $first := dict -}}
{{- range . -}}
{{- if or .Values.image.tag .Values.image.digest -}}
{{- $image := include "xgen-model.image" . -}}
{{- $variant := include "xgen-model.variant" . -}}
{{- $other := get $first $image | default (dict "pool" .pool "variant" $variant) -}}
{{- if ne $other.variant $variant -}}
{{- fail (printf "pools %s (%s) and %s (%s) would run one image, %s: give each pool an image.tag or image.digest of its own, or one image.variant to both if that image has the engines of both" $other.pool $other.variant .pool $variant $image) -}}
{{- end -}}
{{- $_ := set $first $image $other -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The same of what is said once for all pools. */}}
{{- define "xgen-model.check" -}}
{{- $manifest := .Values.manifest -}}
{{- if and $manifest.files $manifest.existingConfigMap -}}
{{- fail "manifest.files and manifest.existingConfigMap: which of the two is the manifest? Give one" -}}
{{- end -}}
{{- $bytes := 0 -}}
{{- range $content := $manifest.files -}}
{{- $bytes = add $bytes (kindIs "string" $content | ternary $content (toYaml $content) | len) -}}
{{- end -}}
{{- if gt $bytes 1048576 -}}
{{- fail (printf "manifest.files has %d bytes, and a ConfigMap holds 1 MiB: use git" $bytes) -}}
{{- end -}}
{{- if and $manifest.namespace (ne $manifest.source "api") -}}
{{- fail "manifest.namespace: only the API (manifest.source: api) reaches into another namespace; a pod mounts ConfigMaps of its own" -}}
{{- end -}}
{{- if and $manifest.namespace (not $manifest.existingConfigMap) -}}
{{- fail "manifest.namespace is where manifest.existingConfigMap is: name one" -}}
{{- end -}}
{{- if eq $manifest.source "git" -}}
{{- if not $manifest.git.url -}}{{- fail "manifest.source is git: give manifest.git.url" -}}{{- end -}}
{{- if or $manifest.files $manifest.existingConfigMap -}}
{{- fail "manifest.source is git, but manifest.files or manifest.existingConfigMap is given: take those out" -}}
{{- end -}}
{{- if and (hasPrefix "ssh://" $manifest.git.url) (not $manifest.git.existingSecret) -}}
{{- fail "manifest.git.url is ssh: name a Secret with ssh-privatekey and known_hosts in manifest.git.existingSecret" -}}
{{- end -}}
{{- if and (or $manifest.git.secretKeys.allowedSigners $manifest.git.secretKeys.webhookSecret) (not $manifest.git.existingSecret) -}}
{{- fail "manifest.git.secretKeys are keys of manifest.git.existingSecret: name it" -}}
{{- end -}}
{{- else if or $manifest.git.url $manifest.git.existingSecret -}}
{{- fail (printf "manifest.git is given, but manifest.source is %s: set manifest.source: git" $manifest.source) -}}
{{- end -}}
{{- $hub := .Values.hub -}}
{{- $directory := hasPrefix "/" $hub.location -}}
{{- if and $directory (not $hub.volume) -}}
{{- fail (printf "hub.location %s is a directory: say in hub.volume what is mounted there" $hub.location) -}}
{{- end -}}
{{- if and $directory (has (clean $hub.location) (list "/" "/tmp" "/dev/shm" "/app/models" "/var/lib/xgen-model" "/etc/xgen-model")) -}}
{{- fail (printf "hub.location %s is a folder of the agent's own: give another, such as /hub" $hub.location) -}}
{{- end -}}
{{- if and $hub.volume (not $directory) -}}
{{- fail "hub.volume is mounted at hub.location, which then has to be a directory such as /hub" -}}
{{- end -}}
{{- if and (or $hub.endpoint $hub.existingSecret) (not (hasPrefix "s3://" $hub.location)) -}}
{{- fail "hub.endpoint and hub.existingSecret are an S3 store's: set hub.location: s3://BUCKET" -}}
{{- end -}}
{{- if and (or (has "IPv6" .Values.service.ipFamilies) (eq .Values.service.ipFamilyPolicy "RequireDualStack")) (not (hasPrefix "[" .Values.listenHost)) -}}
{{- fail (printf "service leads to IPv6 addresses of pods, and agents listen on %s: set listenHost: \"[::]\"" .Values.listenHost) -}}
{{- end -}}
{{- $service := .Values.service -}}
{{- if eq $service.type "ClusterIP" -}}
{{- range $name := list "nodePort" "externalTrafficPolicy" "loadBalancerClass" "loadBalancerSourceRanges" -}}
{{- if get $service $name -}}
{{- fail (printf "service.%s is for a Service that is reached from outside: set service.type" $name) -}}
{{- end -}}
{{- end -}}
{{- else if and (eq $service.type "NodePort") (or $service.loadBalancerClass $service.loadBalancerSourceRanges) -}}
{{- fail "service.loadBalancerClass and loadBalancerSourceRanges: set service.type: LoadBalancer" -}}
{{- end -}}
{{- if and .Values.cluster.existingSecret (not .Values.cluster.enabled) -}}
{{- fail "cluster.existingSecret is a token for peers, but cluster.enabled is false" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.enabled: give ingress.hosts" -}}
{{- end -}}
{{- if and .Values.networkPolicy.egress.enabled (not .Values.networkPolicy.enabled) -}}
{{- fail "networkPolicy.egress.enabled: set networkPolicy.enabled, too" -}}
{{- end -}}
{{- $monitor := .Values.monitoring.serviceMonitor -}}
{{- $interval := include "xgen-model.seconds" $monitor.interval -}}
{{- $timeout := include "xgen-model.seconds" $monitor.scrapeTimeout -}}
{{- if and $interval $timeout (gt (int $timeout) (int $interval)) -}}
{{- fail (printf "monitoring.serviceMonitor.scrapeTimeout %s is longer than its interval %s, which Prometheus' operator refuses" $monitor.scrapeTimeout $monitor.interval) -}}
{{- end -}}
{{- if and .Values.trustedCA.configMap .Values.trustedCA.secret -}}
{{- fail "trustedCA.configMap and trustedCA.secret: give one" -}}
{{- end -}}
{{- end -}}
