package lbproxy

import "golang.org/x/sys/unix"

// resetOnCut resets the backend's connection when the proxy cuts a publish session. When a client
// ends its session itself, the backend sees an end of stream. A Saltern master distinguishes a
// reset from an end of stream: a minion whose session was cut gets the jobs that it missed when it
// reconnects, a minion that left does not. No request is lost, because a publish session carries no
// requests.
func (s *session) resetOnCut(why ending) {
	if s.frontend.mode != Publish || s.fd[sideBackend] < 0 {
		return
	}
	switch why {
	case endDown, endDrain, endCut, endRebalance, endStop, endStall, endUnproven:
		_ = unix.SetsockoptLinger(int(s.fd[sideBackend]), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
}
