{{/* The extender's settings: what the chart decides, then extender.config on top. */}}
{{- define "gpushare.extenderConfig" -}}
{{- $ours := dict "Extender" (dict
      "prefix" .Values.prefix
      "unit" .Values.unit
      "policy" .Values.scheduler.policy
      "dialects" (.Values.dialects | default list)
      "adopt_before" .Values.adoptBefore
      "workload_map" (printf "%s/%s" .Release.Namespace (include "gpushare.workload" .))
      "workload_prior" .Values.scheduler.workload
      "verbs_address" "127.0.0.1:39999"
      "state_address" "0.0.0.0:8443"
      "tls_cert" "/etc/gpushare/tls/tls.crt"
      "tls_key" "/etc/gpushare/tls/tls.key"
      "turn_seconds" .Values.scheduler.line.turnSeconds
      "turn_grace" .Values.scheduler.line.graceSeconds
      "drain_after" .Values.scheduler.line.drainSeconds) -}}
{{- $asked := .Values.scheduler.asked -}}
{{- if ne $asked.by "own" -}}
{{- $_ := set $ours.Extender "verbs_tls_address" "0.0.0.0:39998" -}}
{{- end -}}
{{- if eq $asked.by "mtls" -}}
{{- $_ := set $ours.Extender "verbs_client_ca" "/etc/gpushare/callers/ca.crt" -}}
{{- $_ := set $ours.Extender "verbs_client_names" $asked.clientNames -}}
{{- else if eq $asked.by "proxy" -}}
{{- $_ := set $ours.Extender "verbs_secret" "/etc/gpushare/callers/secret" -}}
{{- end -}}
{{- if .Values.stateApi.clientCA -}}
{{- $_ := set $ours.Extender "client_ca" "/etc/gpushare/clients/ca.crt" -}}
{{- end -}}
{{- if .Values.devicePlugin.enabled -}}
{{- $_ := set $ours.Extender "usage_service" (include "gpushare.devicePlugin" .) -}}
{{- $_ := set $ours.Extender "usage_ca" "/etc/gpushare/agents/ca.crt" -}}
{{- end -}}
{{- if .Values.webhook.enabled -}}
{{- $hook := include "gpushare.webhook" . -}}
{{- $_ := set $ours "Webhook" (dict
      "address" "0.0.0.0:9443"
      "service" $hook
      "secret" (printf "%s-tls" $hook)
      "configuration" $hook
      "scheduler_name" .Values.schedulerName
      "tolerations" .Values.webhook.tolerations
      "runtime_class" .Values.webhook.runtimeClassName
      "card_delivery" .Values.webhook.cardDelivery
      "void_others" .Values.webhook.voidOthers
      "refuse_too_large" .Values.webhook.refuseTooLarge) -}}
{{- if .Values.tls.certManager.enabled -}}
{{- $_ := set $ours.Webhook "tls_cert" "/etc/gpushare/webhook/tls.crt" -}}
{{- $_ := set $ours.Webhook "tls_key" "/etc/gpushare/webhook/tls.key" -}}
{{- end -}}
{{- end -}}
{{- mustMergeOverwrite $ours (deepCopy .Values.extender.config) | toPrettyJson -}}
{{- end }}

{{/* The Secret with what the API server's proxy must be asked with. */}}
{{- define "gpushare.verbsSecret" -}}
{{ .Values.scheduler.asked.existingSecret | default (printf "%s-verbs" (include "gpushare.extender" .)) }}
{{- end }}
