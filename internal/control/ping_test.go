package control

import (
	"strings"
	"testing"
)

func FuzzPingTrouble(f *testing.F) {
	for _, s := range []string{"", PingFault, PingFault + "\xa3", PingFault + "\xa3abc", PingFault + "\xd9",
		PingFault + "\xd9\xff", PingFault + "\xd9\x02ab", PingFault + "\xda\x00\x01a",
		PingFault + "\xa2\n\x1b"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s := PingTrouble(b); len(s) > maxText+10 || strings.ContainsAny(s, "\n\x1b\x00") {
			t.Errorf("%q", s)
		}
	})
}
