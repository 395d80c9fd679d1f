{{/* Names of everything, from nameOverride. */}}
{{- define "gpushare.scheduler" -}}{{ .Values.nameOverride }}-user-scheduler{{- end }}
{{- define "gpushare.extender" -}}{{ .Values.nameOverride }}-extender{{- end }}
{{- define "gpushare.devicePlugin" -}}{{ .Values.nameOverride }}-device-plugin{{- end }}
{{- define "gpushare.stateReader" -}}{{ .Values.nameOverride }}-state-reader{{- end }}
{{- define "gpushare.webhook" -}}{{ .Values.nameOverride }}-webhook{{- end }}
{{- define "gpushare.workload" -}}{{ .Values.nameOverride }}-workload{{- end }}

{{/* Full user names of the two service accounts, as the API server sees them. */}}
{{- define "gpushare.schedulerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "gpushare.scheduler" . }}
{{- end }}
{{- define "gpushare.devicePluginUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "gpushare.devicePlugin" . }}
{{- end }}

{{/* Labels: call with (dict "root" $ "component" "user-scheduler"). */}}
{{- define "gpushare.selectorLabels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- define "gpushare.labels" -}}
{{ include "gpushare.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* One of our images: call with (dict "root" $ "image" .Values.extender.image "name" "extender"). */}}
{{- define "gpushare.image" -}}
{{- $images := .root.Values.images -}}
{{- $repository := .image.repository -}}
{{- if not $repository -}}
{{- $registry := required "images.registry is not set: build the images from this repository, push them, and say where: --set images.registry=registry.example.org/gpushare" $images.registry -}}
{{- $repository = printf "%s/%s" $registry .name -}}
{{- end -}}
{{ $repository }}:{{ .image.tag | default $images.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* kube-scheduler's image: the cluster's own version without a cloud's suffix (v1.33.5-gke.12). */}}
{{- define "gpushare.schedulerImage" -}}
{{- $image := .Values.scheduler.image -}}
{{ $image.repository }}:{{ $image.tag | default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version) }}
{{- end }}

{{/* What every container of ours is held to. */}}
{{- define "gpushare.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The priority of our pods: own class if made, else the one that the values name. */}}
{{- define "gpushare.priorityClass" -}}
{{- if .root.Values.priorityClass.create -}}{{ .root.Values.nameOverride }}
{{- else -}}{{ .name }}{{- end -}}
{{- end }}

{{/* Egress to the API server, wherever it is, and to the cluster's DNS. */}}
{{- define "gpushare.apiServerEgress" -}}
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end }}

{{/* A CEL list of strings. */}}
{{- define "gpushare.celList" -}}
[{{ range $i, $text := . }}{{ if $i }}, {{ end }}{{ $text | squote }}{{ end }}]
{{- end }}
