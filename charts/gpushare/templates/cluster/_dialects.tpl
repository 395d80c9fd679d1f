{{/*
The dialects as gpushare/dialects/ has them, as far as manifests must know: a unit test holds the two
together. resources: what kube-scheduler hands to the extender (uncounted: what no kubelet offers);
protected: annotations that decide or tell who has which card (a last * stands for anything);
started: those that the device plugin sets when a container starts, and to what; count: a resource of
nodes that holds the number of cards; unhealthyMap: ConfigMaps that name cards out of service;
claimedBy: annotations of pods that name claims, whose limits the webhook writes.
*/}}
{{- define "gpushare.dialectTable" -}}
aliyun:
  resources: [aliyun.com/gpu-mem]
  protected:
    - ALIYUN_COM_GPU_MEM_IDX
    - ALIYUN_COM_GPU_MEM_DEV
    - ALIYUN_COM_GPU_MEM_POD
    - ALIYUN_COM_GPU_MEM_ASSIGNED
    - ALIYUN_COM_GPU_MEM_ASSUME_TIME
    - scheduler.framework.gpushare.allocation
  started: {ALIYUN_COM_GPU_MEM_ASSIGNED: "true"}
  count: aliyun.com/gpu-count
  unhealthyMap: unhealthy-gpu-
nano:
  resources: [nano-gpu/gpu-percent]
  protected: [nano-gpu/assume, nano-gpu/container-*]
elastic-gpu:
  resources: [elastic-gpu/gpu-percent]
  protected: [elastic-gpu/assume, elastic-gpu/container-*]
elastic:
  resources: [elasticgpu.io/gpu-memory, elasticgpu.io/gpu-core]
  protected: [elasticgpu.io/assumed, elasticgpu.io/container-*]
  claimedBy: egpuc.elasticgpu.io/
elastic-com:
  resources: [elasticgpu.com/gpu-memory, elasticgpu.com/gpu-core]
  protected: [elasticgpu.io/assumed, elasticgpu.io/container-*]
nvidia:
  resources: [nvidia.com/gpu]
hami:
  resources: [nvidia.com/gpu]
  uncounted: [nvidia.com/gpumem, nvidia.com/gpumem-percentage, nvidia.com/gpucores]
  protected: [hami.io/vgpu-*, hami.io/bind-*]
  started: {hami.io/bind-phase: success}
{{- end }}

{{/* Those of the table that are switched on, as YAML. */}}
{{- define "gpushare.dialects" -}}
{{- $table := include "gpushare.dialectTable" . | fromYaml -}}
{{- $all := dict "resources" list "uncounted" list "protected" list "started" dict "counts" list "unhealthyMaps" list "claimedBy" list -}}
{{- range .Values.dialects -}}
{{- $name := (splitList ":" .) | first -}}
{{- $one := get $table $name -}}
{{- if not $one -}}
{{- fail (printf "dialects: %s is not known: use %s" . (keys $table | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $_ := set $all "resources" (concat $all.resources $one.resources) -}}
{{- $_ := set $all "uncounted" (concat $all.uncounted ($one.uncounted | default list)) -}}
{{- $_ := set $all "protected" (concat $all.protected ($one.protected | default list)) -}}
{{- $_ := set $all "started" (merge $all.started ($one.started | default dict)) -}}
{{- with $one.count }}{{ $_ := set $all "counts" (append $all.counts .) }}{{ end -}}
{{- with $one.claimedBy }}{{ $_ := set $all "claimedBy" (append $all.claimedBy .) }}{{ end -}}
{{- with $one.unhealthyMap }}{{ $_ := set $all "unhealthyMaps" (append $all.unhealthyMaps .) }}{{ end -}}
{{- end -}}
{{ toYaml $all }}
{{- end }}
