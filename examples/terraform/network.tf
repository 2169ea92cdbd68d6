# Who may reach the nodes: the table of docs/network.md, without the virtual address,
# which EC2 has not. A test compares it with the firewall of the image.

locals {
  # Between the nodes.
  between = {
    masters = { from = 4520, to = 4520 }
    nodes   = { from = 4521, to = 4521 }
    lb      = { from = 14505, to = 14507 }
    gluster = { from = 24007, to = 24007 }
    bricks  = { from = 49152, to = 60999 }
  }
  # From networks.
  outside = {
    minions = { from = 4505, to = 4506, networks = var.minions, balanced = true }
    api     = { from = 8000, to = 8000, networks = var.api_clients, balanced = true }
    admins  = { from = 22, to = 22, networks = var.admins, balanced = false }
  }
  outside_rules = merge([for name, rule in local.outside : {
    for network in rule.networks : "${name} ${network}" => { from = rule.from, to = rule.to, network = network, balanced = rule.balanced }
  }]...)
  # What the load balancer passes on.
  fronts = toset(concat(["4505", "4506"], local.api ? ["8000"] : []))
}

resource "aws_security_group" "node" {
  name_prefix = "${var.cluster_id}-"
  description = "Saltern nodes"
  vpc_id      = var.vpc
}

resource "aws_vpc_security_group_ingress_rule" "between" {
  for_each                     = local.between
  security_group_id            = aws_security_group.node.id
  referenced_security_group_id = aws_security_group.node.id
  description                  = each.key
  ip_protocol                  = "tcp"
  from_port                    = each.value.from
  to_port                      = each.value.to
}

resource "aws_vpc_security_group_ingress_rule" "icmp" {
  security_group_id            = aws_security_group.node.id
  referenced_security_group_id = aws_security_group.node.id
  description                  = "pings, and packets that are too big"
  ip_protocol                  = "icmp"
  from_port                    = -1
  to_port                      = -1
}

resource "aws_vpc_security_group_ingress_rule" "outside" {
  for_each          = local.outside_rules
  security_group_id = aws_security_group.node.id
  cidr_ipv4         = each.value.network
  description       = each.key
  ip_protocol       = "tcp"
  from_port         = each.value.from
  to_port           = each.value.to
}

resource "aws_vpc_security_group_egress_rule" "all" {
  security_group_id = aws_security_group.node.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}
