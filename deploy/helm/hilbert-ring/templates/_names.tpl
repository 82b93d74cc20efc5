{{/* A Service's name begins with a letter and has no dot. A label has at most 63 characters, with "-worker" and a hash
after the name. Other names are changed and get a hash of the release's name, so that they stay unique. */}}
{{- define "hilbert-ring.name" -}}
{{- $name := .Release.Name -}}
{{- if not (contains "hilbert-ring" $name) -}}
{{- $name = printf "%s-hilbert-ring" $name -}}
{{- end -}}
{{- if and (le (len $name) 40) (regexMatch "^[a-z][-a-z0-9]*$" $name) -}}
{{- $name -}}
{{- else -}}
{{- $plain := regexReplaceAll "^([0-9])" ($name | replace "." "-") "r${1}" -}}
{{- printf "%s-%s" ($plain | trunc 31 | trimAll "-") (sha256sum .Release.Name | trunc 8) -}}
{{- end -}}
{{- end -}}

{{- define "hilbert-ring.labels" -}}
app.kubernetes.io/name: hilbert-ring
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "hilbert-ring.coordinator" -}}
app.kubernetes.io/name: hilbert-ring
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: coordinator
{{- end -}}

{{- define "hilbert-ring.worker" -}}
app.kubernetes.io/name: hilbert-ring
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: worker
{{- end -}}

{{- define "hilbert-ring.image" -}}
{{- printf "%s:%s" .Values.image.repository .Values.image.tag | quote -}}
{{- end -}}

{{- define "hilbert-ring.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "hilbert-ring.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Mounts and volumes of secrets in both processes. */}}
{{- define "hilbert-ring.secretMounts" -}}
- {name: join-token, mountPath: /etc/hilbert-ring/join, readOnly: true}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/hilbert-ring/tls, readOnly: true}
{{- end }}
{{- end -}}

{{- define "hilbert-ring.secretVolumes" -}}
- name: join-token
  secret: {secretName: {{ .Values.joinToken.secretName | quote }}, defaultMode: 0440}
{{- if .Values.tls.enabled }}
- name: tls
  secret: {secretName: {{ .Values.tls.secretName | quote }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{/* Mount and volume of models in both processes. */}}
{{- define "hilbert-ring.modelMount" -}}
- name: models
  mountPath: /models
  readOnly: true
  {{- with .Values.models.subPath }}
  subPath: {{ . | quote }}
  {{- end }}
{{- end -}}

{{- define "hilbert-ring.modelVolume" -}}
- name: models
  persistentVolumeClaim: {claimName: {{ .Values.models.claimName | quote }}, readOnly: true}
{{- end -}}

{{/* Mount and volume of files of jobs by reference in both processes. */}}
{{- define "hilbert-ring.dataMount" -}}
- name: data-root
  mountPath: /data-root
  {{- with .Values.dataRoot.subPath }}
  subPath: {{ . | quote }}
  {{- end }}
{{- end -}}

{{- define "hilbert-ring.dataVolume" -}}
- name: data-root
  persistentVolumeClaim: {claimName: {{ .Values.dataRoot.claimName | quote }}}
{{- end -}}
