{{/* Elastic GPU's kinds: group elasticgpu.io, version v1alpha1. */}}
{{- define "gpushare.elasticGpuKinds" -}}
- kind: GPU
  plural: gpus
  scope: Cluster
  status: true
  columns:
    - {name: Node, path: .spec.nodeName}
    - {name: Index, type: integer, path: .spec.index}
    - {name: Model, path: .spec.model}
    - {name: Memory, type: integer, path: .spec.memory}
    - {name: State, path: .status.state}
  required: [spec]
  properties:
    spec:
      type: object
      required: [index]
      properties:
        index: {type: integer, minimum: 0}
        uuid: {type: string}
        model: {type: string}
        path: {type: string}
        memory: {type: integer, format: int64, minimum: 0, description: in MiB}
        nodeName: {type: string}
    status:
      type: object
      properties:
        state: {type: string}
        capacity: {{- include "gpushare.resourceList" . | nindent 10 }}
        allocatable: {{- include "gpushare.resourceList" . | nindent 10 }}
        allocated:
          type: object
          description: what pods hold, by the pod's uid
          additionalProperties:
            type: object
            properties:
              namespace: {type: string}
              pod: {type: string}
              containers:
                type: array
                items:
                  type: object
                  properties:
                    container: {type: string}
                    resource: {{- include "gpushare.resourceList" . | nindent 22 }}
- kind: ElasticGPU
  plural: elasticgpus
  short: egpu
  scope: Cluster
  status: true
  columns:
    - {name: Phase, path: .status.phase}
    - {name: Claim, path: .spec.claimRef.name}
    - {name: Namespace, path: .spec.claimRef.namespace}
    - {name: GPU, path: .spec.gpuShare.gpuName}
  required: [spec]
  properties:
    spec:
      type: object
      properties:
        capacity: {{- include "gpushare.resourceList" . | nindent 10 }}
        qGPU:
          type: object
          properties:
            gpuName: {type: string}
            deviceName: {type: string}
            paths: {type: array, items: {type: string}}
        physicalGPU:
          type: object
          required: [gpuNames]
          properties:
            gpuNames: {type: array, items: {type: string}}
        gpuShare:
          type: object
          properties:
            gpuName: {type: string}
        claimRef:
          type: object
          properties:
            apiVersion: {type: string}
            kind: {type: string}
            namespace: {type: string}
            name: {type: string}
            uid: {type: string}
            resourceVersion: {type: string}
            fieldPath: {type: string}
        nodeAffinity:
          type: object
          properties:
            required:
              type: object
              x-kubernetes-preserve-unknown-fields: true
    status:
      type: object
      properties:
        phase: {type: string, enum: [Pending, Available, Bound, Released, Failed]}
        message: {type: string}
        reason: {type: string}
- kind: ElasticGPUClaim
  plural: elasticgpuclaims
  short: egpuc
  scope: Namespaced
  status: true
  columns:
    - {name: Phase, path: .status.phase}
    - {name: ElasticGPU, path: .spec.elasticGPUName}
    - {name: Class, path: .spec.elasticGPUClassName}
    - {name: Message, path: .status.message}
  required: [spec]
  properties:
    spec:
      type: object
      required: [elasticGPUClassName]
      properties:
        resources:
          type: object
          properties:
            limits: {{- include "gpushare.resourceList" . | nindent 14 }}
            requests: {{- include "gpushare.resourceList" . | nindent 14 }}
        elasticGPUName: {type: string}
        elasticGPUClassName: {type: string, minLength: 1}
    status:
      type: object
      properties:
        phase: {type: string, enum: [Pending, Bound, Released, Lost]}
        message: {type: string}
- kind: ElasticGPUClass
  plural: elasticgpuclasses
  scope: Cluster
  columns:
    - {name: Provisioner, path: .provisioner}
    - {name: ReclaimPolicy, path: .reclaimPolicy}
  required: [provisioner]
  properties:
    provisioner: {type: string, minLength: 1}
    parameters:
      type: object
      additionalProperties: {type: string}
    reclaimPolicy: {type: string, enum: [Delete, Retain], default: Delete}
{{- end }}

{{/* The schema of a v1.ResourceList. */}}
{{- define "gpushare.resourceList" -}}
type: object
additionalProperties:
  x-kubernetes-int-or-string: true
  anyOf: [{type: integer}, {type: string}]
  pattern: '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'
{{- end }}
