output "master" {
  description = "what minions have as master"
  value       = local.nodes > 1 ? aws_lb.front[0].dns_name : aws_network_interface.node[0].private_ip
}

output "nodes" {
  description = "private addresses of the nodes"
  value       = aws_network_interface.node[*].private_ip
}

output "security_group" {
  description = "group of the nodes, for rules of your own, such as 4522 for Prometheus"
  value       = aws_security_group.node.id
}
