package lbproxy

import "golang.org/x/sys/unix"

// resetOnCut makes a publish session that is cut end with a reset at its backend, not with an end
// of stream as when the client leaves. A master of Saltern tells the two apart: a minion that was
// cut may miss a job until it is back, and gets it then. A minion that left by itself does not.
// Such a connection has no request under way.
func (s *session) resetOnCut(why ending) {
	if s.frontend.mode != Publish || s.fd[sideBackend] < 0 {
		return
	}
	switch why {
	case endDown, endDrain, endCut, endRebalance, endStop, endStall, endUnproven:
		_ = unix.SetsockoptLinger(int(s.fd[sideBackend]), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
}
