package life

import "testing"

// A node without a volume serves its own directory.
func TestNewestWithoutVolume(t *testing.T) {
	if n := (server{}).newest(t.Context(), &Life{}); !n.Direct {
		t.Errorf("%+v", n)
	}
}
