// Package vip manages the virtual address of a cluster: one node has the address, and another node
// takes it over if the first one is lost, drained or does not serve. Minions that know only this
// address need no load balancer in front of the nodes.
//
// Debian's keepalived does the work (VRRP, RFC 3768 for IPv4 and RFC 5798 for IPv6). It runs on
// each node, and asks the supervisor there whether the node is fit. All nodes begin as backups, and
// none takes the address from a node that has it, because each move costs the minions their
// connections. keepalived sends announcements to the other nodes' addresses one by one, not to a
// multicast group.
//
// VRRP moves an address by telling the neighbours on the same network segment. Where a provider
// routes addresses, as on EC2, VRRP has no effect.
package vip
