// Package vip keeps the virtual address of a cluster: an address that one of
// the nodes has, and that another takes over when that one is lost, is drained
// or does not serve. Minions that know only this address need no load balancer
// in front of the nodes.
//
// The work is done by Debian's keepalived (VRRP, RFC 3768 for IPv4 and RFC 5798
// for IPv6), one per node, which asks the node itself whether it is fit. All
// nodes begin as backups and none takes the address from one that has it:
// each move costs the minions their connections. Announcements go to the other
// nodes' addresses one by one, not to a multicast group.
//
// VRRP moves an address by telling the neighbours on the same network segment.
// Where addresses belong to a provider, as on EC2, that has no effect.
package vip
