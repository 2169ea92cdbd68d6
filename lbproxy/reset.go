package lbproxy

import "golang.org/x/sys/unix"

// resetOnCut has the closing of a publish session's backend socket reset the
// connection when the session was cut here, not ended by its client. A master
// of Saltern tells the two apart: a minion that was cut may have missed a job
// until it is back, and gets it then; one that went by itself does not. The
// minion has nothing under way on such a connection.
func (s *session) resetOnCut(why ending) {
	if s.frontend.mode != Publish || s.fd[sideBackend] < 0 {
		return
	}
	switch why {
	case endDown, endDrain, endCut, endRebalance, endStop, endStall, endUnproven:
		_ = unix.SetsockoptLinger(int(s.fd[sideBackend]), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
}
