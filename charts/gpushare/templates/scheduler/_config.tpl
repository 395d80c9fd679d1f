{{/* The extender's settings: what the chart decides, then extender.config on top. */}}
{{- define "gpushare.extenderConfig" -}}
{{- $ours := dict "Extender" (dict
      "prefix" .Values.prefix
      "unit" .Values.unit
      "policy" .Values.scheduler.policy
      "dialects" .Values.dialects
      "adopt_before" .Values.adoptBefore
      "workload_map" (printf "%s/%s" .Release.Namespace (include "gpushare.workload" .))
      "workload_prior" .Values.scheduler.workload
      "verbs_address" "127.0.0.1:39999"
      "state_address" "0.0.0.0:8443"
      "tls_cert" "/etc/gpushare/tls/tls.crt"
      "tls_key" "/etc/gpushare/tls/tls.key") -}}
{{- mustMergeOverwrite $ours (deepCopy .Values.extender.config) | toPrettyJson -}}
{{- end }}
