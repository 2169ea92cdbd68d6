package master

import "path/filepath"

// sessionDir is the folder of session keys in a cluster in which Salt's own
// masters take part; "" otherwise, since ours derive them.
func (m *Master) sessionDir() string {
	switch c := m.cfg; {
	case !c.ClusterPlainPeers:
		return ""
	case c.ClusterSessions != "":
		return c.ClusterSessions
	default:
		return filepath.Join(c.CacheDir, "sessions")
	}
}
