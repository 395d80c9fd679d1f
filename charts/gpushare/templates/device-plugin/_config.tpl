{{/*
How the agent gets at the cards. Where the cluster has the RuntimeClass, that is the way with the
fewest rights.
*/}}
{{- define "gpushare.access" -}}
{{- $plugin := .Values.devicePlugin -}}
{{- if ne $plugin.access "auto" -}}{{ $plugin.access }}
{{- else if lookup "node.k8s.io/v1" "RuntimeClass" "" $plugin.runtimeClassName -}}runtime
{{- else -}}privileged{{- end -}}
{{- end }}

{{/* The device plugin's settings: what the chart decides, then devicePlugin.config on top. */}}
{{- define "gpushare.devicePluginConfig" -}}
{{- $ours := dict "DevicePlugin" (dict
      "prefix" .Values.prefix
      "unit" .Values.unit
      "dialects" (.Values.dialects | default list)
      "adopt_before" .Values.adoptBefore
      "driver_root" (ternary "/" "/driver" (eq (include "gpushare.access" .) "runtime"))
      "cdi_dirs" .Values.devicePlugin.cdiDirs
      "cdi_spec_dir" (last .Values.devicePlugin.cdiDirs)
      "status_address" "0.0.0.0:9409"
      "log_lines" "json") "Enforcement" (dict
      "level" .Values.devicePlugin.enforcement
      "state_dir" "/run/gpushare"
      "usage_address" "0.0.0.0:9410"
      "tls_cert" "/etc/gpushare/tls/tls.crt"
      "tls_key" "/etc/gpushare/tls/tls.key"
      "mps_socket" "/run/gpushare/mps/host.sock"
      "mps_shm_dir" "/dev/shm/gpushare-mps") -}}
{{- mustMergeOverwrite $ours (deepCopy .Values.devicePlugin.config) | toPrettyJson -}}
{{- end }}

{{/* The nodes that share their cards, in a pod's spec. */}}
{{- define "gpushare.agentNodes" -}}
{{- if or .Values.devicePlugin.nodeLabel .Values.devicePlugin.nodeSelector }}
nodeSelector:
  {{- with .Values.devicePlugin.nodeLabel }}
  {{ (splitn "=" 2 .)._0 }}: {{ (splitn "=" 2 .)._1 | quote }}
  {{- end }}
  {{- with .Values.devicePlugin.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- with .Values.devicePlugin.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.devicePlugin.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
