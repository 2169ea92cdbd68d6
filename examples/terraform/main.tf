# Three nodes behind a network load balancer. The first forms the cluster, the
# others join it; nobody logs in.
#
#   terraform init && terraform apply -var ami=ami-… -var vpc=vpc-… \
#     -var 'subnets=["subnet-a","subnet-b","subnet-c"]' -var secret=$(openssl rand -hex 20)
#
# The nodes find each other by fixed private addresses, which are made before
# the machines. Minions use the load balancer's name: `terraform output master`.

terraform {
  required_version = ">= 1.3"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.0"
    }
  }
}

variable "region" {
  type    = string
  default = "eu-central-1"
}

variable "ami" {
  type        = string
  description = "image of saltern-image ami"
}

variable "vpc" {
  type = string
}

variable "subnets" {
  type        = list(string)
  description = "three subnets, best in three zones"
  validation {
    condition     = length(var.subnets) == 3
    error_message = "Three subnets are needed, one for each node."
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
  type    = list(string)
  default = []
}

variable "instance_type" {
  type    = string
  default = "t3.small"
}

variable "data_gib" {
  type    = number
  default = 20
}

provider "aws" {
  region = var.region
}

resource "aws_security_group" "node" {
  name_prefix = "saltern-"
  vpc_id      = var.vpc

  ingress {
    description = "minions"
    from_port   = 4505
    to_port     = 4506
    protocol    = "tcp"
    cidr_blocks = var.minions
  }
  ingress {
    description = "the other nodes: node API, masters, gluster"
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    self        = true
  }
  dynamic "ingress" {
    for_each = length(var.admins) > 0 ? [1] : []
    content {
      description = "administrators"
      from_port   = 22
      to_port     = 22
      protocol    = "tcp"
      cidr_blocks = var.admins
    }
  }
  egress {
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_network_interface" "node" {
  count           = 3
  subnet_id       = var.subnets[count.index]
  security_groups = [aws_security_group.node.id]
  tags            = { Name = "saltern-${count.index + 1}" }
}

resource "aws_instance" "node" {
  count         = 3
  ami           = var.ami
  instance_type = var.instance_type

  network_interface {
    network_interface_id = aws_network_interface.node[count.index].id
    device_index         = 0
  }
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }
  root_block_device {
    volume_type = "gp3"
    volume_size = 10
    encrypted   = true
  }
  ebs_block_device {
    device_name = "/dev/sdf"
    volume_type = "gp3"
    volume_size = var.data_gib
    encrypted   = true
  }
  user_data = <<-EOT
    #cloud-config
    saltern:
      mode: ${count.index == 0 ? "form" : "join"}
      cluster_id: ${count.index == 0 ? "blue" : "\"\""}
      node: saltern-${count.index + 1}
      address: ${aws_network_interface.node[count.index].private_ip}
      peers: ${count.index == 0 ? "[]" : jsonencode([aws_network_interface.node[0].private_ip])}
      secret: ${jsonencode(var.secret)}
      data_disk: /dev/nvme1n1
      storage: {kind: volume}
      admin:
        ssh_keys: ${jsonencode(var.ssh_keys)}
  EOT
  tags      = { Name = "saltern-${count.index + 1}" }

  lifecycle {
    ignore_changes = [user_data, ami] # nodes are upgraded by themselves, see docs/image.md
  }
}

resource "aws_lb" "front" {
  name_prefix                      = "salt-"
  internal                         = true
  load_balancer_type               = "network"
  subnets                          = var.subnets
  enable_cross_zone_load_balancing = true
}

resource "aws_lb_target_group" "port" {
  for_each           = toset(["4505", "4506"])
  name_prefix        = "salt-"
  port               = tonumber(each.key)
  protocol           = "TCP"
  vpc_id             = var.vpc
  preserve_client_ip = true
  # A node that goes keeps its sessions until it has drained them itself.
  deregistration_delay   = 60
  connection_termination = true
  health_check {
    protocol            = "TCP"
    port                = each.key
    interval            = 10
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_listener" "port" {
  for_each          = aws_lb_target_group.port
  load_balancer_arn = aws_lb.front.arn
  port              = tonumber(each.key)
  protocol          = "TCP"
  default_action {
    type             = "forward"
    target_group_arn = each.value.arn
  }
}

resource "aws_lb_target_group_attachment" "node" {
  for_each         = { for p in setproduct(["4505", "4506"], [0, 1, 2]) : "${p[0]}-${p[1]}" => p }
  target_group_arn = aws_lb_target_group.port[each.value[0]].arn
  target_id        = aws_instance.node[tonumber(each.value[1])].id
}

output "master" {
  description = "what minions have as master"
  value       = aws_lb.front.dns_name
}

output "nodes" {
  value = aws_network_interface.node[*].private_ip
}
