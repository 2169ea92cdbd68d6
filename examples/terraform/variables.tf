variable "ami" {
  type        = string
  description = "image of `saltern-image ami`"
}

variable "vpc" {
  type        = string
  description = "the VPC of the subnets"
}

variable "subnets" {
  type        = list(string)
  description = "one subnet for each node: one, or three in three zones"
  validation {
    condition     = contains([1, 3], length(var.subnets))
    error_message = "One node needs one subnet, a cluster three."
  }
}

variable "secret" {
  type        = string
  sensitive   = true
  description = "the cluster's secret, 16 to 128 characters that nobody guesses"
  validation {
    condition     = length(var.secret) >= 16 && length(var.secret) <= 128
    error_message = "The secret needs 16 to 128 characters: openssl rand -hex 20."
  }
}

variable "cluster_id" {
  type        = string
  default     = "blue"
  description = "name of the cluster, and of what is made"
}

variable "ssh_keys" {
  type        = list(string)
  default     = []
  description = "public keys of the account admin"
}

variable "minions" {
  type        = list(string)
  default     = ["10.0.0.0/8"]
  description = "networks that minions are in"
}

variable "admins" {
  type        = list(string)
  default     = []
  description = "networks from which one may log in by SSH"
}

variable "api_clients" {
  type        = list(string)
  default     = []
  description = "networks that may use Salt's API, which the nodes serve if there are some"
}

variable "instance_type" {
  type        = string
  default     = "t3.small"
  description = "kind of instance, with Nitro: see docs/sizing.md"
}

variable "data_gib" {
  type        = number
  default     = 20
  description = "size of the disk with each node's copy of keys and files"
}
