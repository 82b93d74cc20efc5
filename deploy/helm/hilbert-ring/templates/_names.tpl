{{/* A Service's name begins with a letter and has no dot. A label has 63 characters at most, and up to 23 follow the name:
"-worker", a group's number, a hash. Another name is changed, and a hash of the release's keeps it apart. */}}
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

{{/* Secrets as files: mounts, then volumes, of both processes. */}}
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

{{/* Models of encoders: mount, then volume, of both processes. */}}
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

{{/* Files that jobs name: mount, then volume, of both processes. */}}
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

{{/* What a worker is, in a StatefulSet and in a LeaderWorkerSet. */}}
{{- define "hilbert-ring.workerPod" -}}
metadata:
  labels:
    {{- include "hilbert-ring.worker" . | nindent 4 }}
  {{- with .Values.worker.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "hilbert-ring.name" . }}
  automountServiceAccountToken: false
  # Variables such as HILBERT_RING_PORT are the programs' settings.
  enableServiceLinks: false
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.worker.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.worker.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  # SIGTERM drains for --exit-timeout: no more jobs, and those that run end.
  terminationGracePeriodSeconds: {{ add .Values.worker.exitTimeoutSeconds 30 }}
  securityContext:
    {{- include "hilbert-ring.podSecurity" . | nindent 4 }}
  containers:
    - name: worker
      image: {{ include "hilbert-ring.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command:
        - hilbert-ring-worker
        - --coordinator={{ include "hilbert-ring.name" . }}-membership:8003
        - --join-token-file=/etc/hilbert-ring/join/join-token
        - --port=8101
        - --device={{ if gt (int .Values.worker.gpus) 0 }}cuda:0{{ else }}cpu{{ end }}
        - --exit-timeout={{ .Values.worker.exitTimeoutSeconds }}
        - --ready-file=/run/hilbert-ring/registered
        - --log-level={{ .Values.logLevel }}
        - --log-format={{ .Values.logFormat }}
        {{- if and .Values.tls.enabled .Values.tls.betweenProcesses }}
        - --tls-cert=/etc/hilbert-ring/tls/tls.crt
        - --tls-key=/etc/hilbert-ring/tls/tls.key
        - --tls-ca=/etc/hilbert-ring/tls/ca.crt
        {{- else if .Values.tls.enabled }}
        - --http-tls-cert=/etc/hilbert-ring/tls/tls.crt
        - --http-tls-key=/etc/hilbert-ring/tls/tls.key
        {{- end }}
        {{- if .Values.auth.enabled }}
        - --auth-token-file=/etc/hilbert-ring/auth/tokens
        {{- end }}
        {{- if .Values.models.claimName }}
        - --model-dir=/models
        - --model-memory={{ .Values.models.memory }}
        - --memory-share={{ .Values.models.jobsShare }}
        {{- end }}
        {{- if .Values.dataRoot.claimName }}
        - --data-root=/data-root
        {{- end }}
        {{- range .Values.worker.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        # At which coordinator and workers reach it.
        - name: HILBERT_RING_HOST
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - {name: HILBERT_RING_HTTP_PORT, value: "8102"}
        {{- if not (and .Values.tls.enabled .Values.tls.betweenProcesses) }}
        # Clear text between processes: the network policy is what keeps others out.
        - {name: HILBERT_RING_INSECURE, value: "true"}
        {{- end }}
      ports:
        - {name: worker, containerPort: 8101}
        - {name: metrics, containerPort: 8102}
      # Registered; no longer once it drains.
      readinessProbe:
        exec: {command: [test, -e, /run/hilbert-ring/registered]}
        periodSeconds: 2
      livenessProbe:
        tcpSocket: {port: worker}
        periodSeconds: 10
        failureThreshold: 6
      resources:
        {{- $resources := deepCopy .Values.worker.resources }}
        {{- if gt (int .Values.worker.gpus) 0 }}
        {{- $gpu := dict .Values.worker.gpuResource (toString .Values.worker.gpus) }}
        {{- $resources = merge $resources (dict "limits" $gpu) }}
        {{- end }}
        {{- toYaml $resources | nindent 8 }}
      securityContext:
        {{- include "hilbert-ring.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - {name: run, mountPath: /run/hilbert-ring}
        - {name: shared-memory, mountPath: /dev/shm}
        {{- include "hilbert-ring.secretMounts" . | nindent 8 }}
        {{- if .Values.auth.enabled }}
        - {name: auth, mountPath: /etc/hilbert-ring/auth, readOnly: true}
        {{- end }}
        {{- if .Values.models.claimName }}
        {{- include "hilbert-ring.modelMount" . | nindent 8 }}
        {{- end }}
        {{- if .Values.dataRoot.claimName }}
        {{- include "hilbert-ring.dataMount" . | nindent 8 }}
        {{- end }}
  volumes:
    - name: run
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    - name: shared-memory
      emptyDir: {medium: Memory, sizeLimit: {{ .Values.worker.sharedMemorySize }}}
    {{- include "hilbert-ring.secretVolumes" . | nindent 4 }}
    {{- if .Values.auth.enabled }}
    - name: auth
      secret: {secretName: {{ default .Values.auth.secretName .Values.auth.workersSecretName | quote }}, defaultMode: 0440}
    {{- end }}
    {{- if .Values.models.claimName }}
    {{- include "hilbert-ring.modelVolume" . | nindent 4 }}
    {{- end }}
    {{- if .Values.dataRoot.claimName }}
    {{- include "hilbert-ring.dataVolume" . | nindent 4 }}
    {{- end }}
  {{- with .Values.worker.topologySpread }}
  {{- if .enabled }}
  topologySpreadConstraints:
    - maxSkew: {{ .maxSkew }}
      topologyKey: {{ .topologyKey | quote }}
      whenUnsatisfiable: {{ .whenUnsatisfiable }}
      labelSelector:
        matchLabels:
          {{- include "hilbert-ring.worker" $ | nindent 10 }}
  {{- end }}
  {{- end }}
  {{- with .Values.worker.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.worker.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.worker.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
