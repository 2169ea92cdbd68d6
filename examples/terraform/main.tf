# One node, or three behind a network load balancer, by the number of subnets. The
# first forms the cluster, the others join it; nobody logs in. docs/aws.md says more.
#
#   export AWS_REGION=eu-central-1
#   terraform init && terraform apply -var ami=ami-… -var vpc=vpc-… \
#     -var 'subnets=["subnet-a","subnet-b","subnet-c"]' -var secret=$(openssl rand -hex 20)
#
# The nodes find each other by fixed private addresses, which are made before the
# machines. Minions have the output `master`. As a module of yours: source = a copy of
# this folder, and the provider is that of the caller.

terraform {
  required_version = ">= 1.3"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.31"
    }
  }
}

locals {
  nodes = length(var.subnets)
  api   = length(var.api_clients) > 0
}

resource "aws_network_interface" "node" {
  count           = local.nodes
  subnet_id       = var.subnets[count.index]
  security_groups = [aws_security_group.node.id]
  tags            = { Name = "${var.cluster_id}-${count.index + 1}" }
}

resource "aws_instance" "node" {
  count         = local.nodes
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
  user_data = templatefile("${path.module}/user-data.yaml.tftpl", {
    first      = count.index == 0
    cluster_id = var.cluster_id
    node       = "${var.cluster_id}-${count.index + 1}"
    address    = aws_network_interface.node[count.index].private_ip
    peer       = aws_network_interface.node[0].private_ip
    secret     = var.secret
    api        = local.api
    ssh_keys   = var.ssh_keys
  })
  tags = { Name = "${var.cluster_id}-${count.index + 1}" }

  lifecycle {
    ignore_changes = [user_data, ami] # nodes are upgraded by themselves, see docs/updates.md
  }
}
