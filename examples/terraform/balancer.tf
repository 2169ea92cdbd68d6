# A network load balancer in front of three nodes. Addresses of clients are kept, so that
# the nodes' limits for strangers hold for each. Minions may also have the nodes'
# addresses as master.

locals {
  balanced = toset([for port in local.fronts : port if local.nodes > 1])
}

resource "aws_security_group" "front" {
  count       = local.nodes > 1 ? 1 : 0
  name_prefix = "${var.cluster_id}-front-"
  description = "Load balancer in front of the Saltern nodes"
  vpc_id      = var.vpc
}

resource "aws_vpc_security_group_ingress_rule" "front" {
  for_each          = { for key, rule in local.outside_rules : key => rule if local.nodes > 1 && rule.balanced }
  security_group_id = aws_security_group.front[0].id
  cidr_ipv4         = each.value.network
  description       = each.key
  ip_protocol       = "tcp"
  from_port         = each.value.from
  to_port           = each.value.to
}

resource "aws_vpc_security_group_egress_rule" "front" {
  for_each                     = local.balanced
  security_group_id            = aws_security_group.front[0].id
  referenced_security_group_id = aws_security_group.node.id
  ip_protocol                  = "tcp"
  from_port                    = tonumber(each.key)
  to_port                      = tonumber(each.key)
}

resource "aws_vpc_security_group_ingress_rule" "balanced" {
  for_each                     = local.balanced
  security_group_id            = aws_security_group.node.id
  referenced_security_group_id = aws_security_group.front[0].id
  description                  = "the load balancer and its checks"
  ip_protocol                  = "tcp"
  from_port                    = tonumber(each.key)
  to_port                      = tonumber(each.key)
}

resource "aws_lb" "front" {
  count                            = local.nodes > 1 ? 1 : 0
  name_prefix                      = "salt-"
  internal                         = true
  load_balancer_type               = "network"
  subnets                          = var.subnets
  security_groups                  = [aws_security_group.front[0].id]
  enable_cross_zone_load_balancing = true
}

resource "aws_lb_target_group" "port" {
  for_each           = local.balanced
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
  load_balancer_arn = aws_lb.front[0].arn
  port              = tonumber(each.key)
  protocol          = "TCP"
  default_action {
    type             = "forward"
    target_group_arn = each.value.arn
  }
}

resource "aws_lb_target_group_attachment" "node" {
  for_each         = { for p in setproduct(tolist(local.balanced), range(local.nodes)) : "${p[0]}-${p[1]}" => p }
  target_group_arn = aws_lb_target_group.port[each.value[0]].arn
  target_id        = aws_instance.node[tonumber(each.value[1])].id
}
