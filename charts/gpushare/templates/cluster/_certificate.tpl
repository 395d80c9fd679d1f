{{/* The Secret with the certificate of a service of ours: (dict "root" $ "service" NAME). */}}
{{- define "gpushare.tlsSecret" -}}
{{- $own := printf "%s-tls" .service -}}
{{- if eq .service (include "gpushare.extender" .root) -}}
{{ .root.Values.tls.existingSecret | default $own }}
{{- else -}}{{ $own }}{{- end -}}
{{- end }}

{{/* DNS names of a service, as JSON. */}}
{{- define "gpushare.dnsNames" -}}
{{- $in := printf "%s.%s" .service .root.Release.Namespace -}}
{{- list .service $in (printf "%s.svc" $in) (printf "%s.svc.cluster.local" $in) "localhost" | toJson -}}
{{- end }}

{{/*
The data of a Secret with a certificate of the chart's own making, as JSON: the one that is there, so
that an upgrade changes nothing for those who trust it, else a new one. The authority's key is thrown
away: it has signed this one certificate.
*/}}
{{- define "gpushare.ownCertificate" -}}
{{- $kept := lookup "v1" "Secret" .root.Release.Namespace (include "gpushare.tlsSecret" .) -}}
{{- if and $kept $kept.data -}}
{{ toJson $kept.data }}
{{- else -}}
{{- $days := int .root.Values.tls.validityDays -}}
{{- $ca := genCA (printf "%s-ca" .service) $days -}}
{{- $names := include "gpushare.dnsNames" . | fromJsonArray -}}
{{- $cert := genSignedCert .service (list "127.0.0.1") $names $days $ca -}}
{{- dict "ca.crt" ($ca.Cert | b64enc) "tls.crt" ($cert.Cert | b64enc) "tls.key" ($cert.Key | b64enc) | toJson -}}
{{- end -}}
{{- end }}

{{/* The Secret of a service, by cert-manager or by the chart; and where to publish its authority. */}}
{{- define "gpushare.certificate" -}}
{{- $root := .root -}}
{{- $service := .service -}}
{{- $labels := include "gpushare.labels" (dict "root" $root "component" .component) -}}
{{- if $root.Values.tls.certManager.enabled -}}
{{- $issuer := $root.Values.tls.certManager.issuerRef | default (dict "kind" "Issuer" "name" $root.Values.nameOverride) -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $service }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
spec:
  secretName: {{ include "gpushare.tlsSecret" . }}
  commonName: {{ $service }}
  dnsNames: {{- include "gpushare.dnsNames" . | fromJsonArray | toYaml | nindent 4 }}
  ipAddresses: [127.0.0.1]
  privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}
  issuerRef: {{- toYaml $issuer | nindent 4 }}
{{- else -}}
{{- $data := include "gpushare.ownCertificate" . | fromJson -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ include "gpushare.tlsSecret" . }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
type: kubernetes.io/tls
data:
  ca.crt: {{ index $data "ca.crt" }}
  tls.crt: {{ index $data "tls.crt" }}
  tls.key: {{ index $data "tls.key" }}
{{- range .publishTo | default list | uniq }}
---
# Whom callers trust; there is nothing secret about it.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $service }}-ca
  namespace: {{ . }}
  labels: {{- $labels | nindent 4 }}
data:
  ca.crt: |
    {{- index $data "ca.crt" | b64dec | trim | nindent 4 }}
{{- end }}
{{- end }}
{{- end }}
