{{/* The name of all objects: at most 52 characters, so that those of the pods are valid. */}}
{{- define "exportbridge.name" -}}
{{- $name := .Release.Name }}
{{- if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end }}
{{- $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "exportbridge.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "exportbridge.labels" -}}
{{ include "exportbridge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/part-of: exportbridge
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | quote }}
{{- end }}

{{- define "exportbridge.metadata" -}}
name: {{ include "exportbridge.name" . }}
labels:
  {{- include "exportbridge.labels" . | nindent 2 }}
{{- end }}

{{/* The ports of the addresses in the settings, as JSON: those of brokers, and of URLs, which may
have several hosts. */}}
{{- define "exportbridge.ports" -}}
{{- $ports := list 443 }}
{{- $usual := dict "kafka" 9092 "https" 443 "http" 80 "redis" 6379 "rediss" 6379 }}
{{- range $variable, $value := .Values.settings }}
  {{- $url := toString $value }}
  {{- if hasSuffix "KAFKA_BROKERS" $variable }}{{ $url = printf "kafka://%s" $url }}{{ end }}
  {{- if hasSuffix "KAFKA_CE_SOURCE" $variable }}{{ $url = "" }}{{ end }}{{/* a name, and no address */}}
  {{- if and (regexMatch "^[a-z0-9]+://" $url) (not (hasPrefix "unix:" $url)) }}
    {{- $scheme := regexFind "^[a-z0-9]+" $url }}
    {{- range regexReplaceAll "^[a-z0-9]+://([^/?]*).*" $url "${1}" | splitList "," }}
      {{- $port := regexFind ":[0-9]+$" (trim .) | trimPrefix ":" | default (get $usual $scheme) | int }}
      {{- if not $port }}{{ fail (printf "settings.%s: write the port into the address %s" $variable $value) }}{{ end }}
      {{- $ports = append $ports $port }}
    {{- end }}
  {{- end }}
{{- end }}
{{- range .Values.networkPolicy.ports }}{{ $ports = append $ports (int .) }}{{ end }}
{{- $sorted := list }}
{{- range $ports }}{{ $sorted = append $sorted (printf "%05d" .) }}{{ end }}
{{- $sorted | uniq | sortAlpha | toJson }}
{{- end }}
