//go:build e2e && appliance

package e2e

import "syscall"

// soakFault breaks something on a node and returns what mends it.
type soakFault struct {
	name string
	do   func(s *soak, n soakNode) (mend func())
	host bool // for the others the host has vanished
}

// signalled sends a signal to a service and gives what ends it.
func (s *soak) signalled(n soakNode, service string, sig syscall.Signal) func() {
	pid := serviceOf(s.t, n, service)
	n.signal(pid, sig)
	return func() {
		if sig == syscall.SIGSTOP {
			n.signal(pid, syscall.SIGCONT)
		}
	}
}

// filtered has a rule for a node that Unbar takes away.
func filtered(rule func(s *soak, n soakNode)) func(*soak, soakNode) func() {
	return func(s *soak, n soakNode) func() {
		rule(s, n)
		return func() { s.net.Unbar(s.t, n.address()) }
	}
}

// service sends a signal to a service of a node.
func service(name string, sig syscall.Signal) func(*soak, soakNode) func() {
	return func(s *soak, n soakNode) func() { return s.signalled(n, name, sig) }
}

func (s *soak) others(n soakNode) (out []string) {
	for _, o := range s.nodes {
		if o != n {
			out = append(out, o.address())
		}
	}
	return out
}

// soakFaults are those of a node of any kind.
func soakFaults() []soakFault {
	return []soakFault{
		{name: "master killed", do: service("master", syscall.SIGKILL)},
		{name: "master stopped", do: service("master", syscall.SIGTERM)},
		{name: "master frozen", do: service("master", syscall.SIGSTOP)},
		{name: "load balancer killed", do: service("lb", syscall.SIGKILL)},
		{name: "load balancer frozen", do: service("lb", syscall.SIGSTOP)},
		{name: "cable", do: func(s *soak, n soakNode) func() {
			s.net.Cut(s.t, n.address())
			return func() { s.net.Mend(s.t, n.address()) }
		}, host: true},
		{name: "node killed", do: func(s *soak, n soakNode) func() {
			n.Kill()
			return func() { n.Launch(s.t) }
		}, host: true},
		{name: "disk full", do: func(s *soak, n soakNode) func() {
			n.fill(s.t)
			return func() { n.empty(s.t) }
		}},
		{name: "deaf", do: filtered(func(s *soak, n soakNode) { s.net.Deafen(s.t, n.address()) })},
		{name: "mute", do: filtered(func(s *soak, n soakNode) { s.net.Mute(s.t, n.address()) })},
		{name: "apart", do: filtered(func(s *soak, n soakNode) { s.net.Apart(s.t, n.address(), s.others(n)...) })},
		{
			name: "apart from one",
			do:   filtered(func(s *soak, n soakNode) { s.net.Apart(s.t, n.address(), s.others(n)[0]) }),
		},
		{name: "30 % loss", do: filtered(func(s *soak, n soakNode) { s.net.Lose(s.t, n.address(), 30) })},
	}
}
