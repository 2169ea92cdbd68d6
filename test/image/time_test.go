//go:build boot

package image

import (
	"encoding/binary"
	"net"
	"testing"
	"time"
)

// host is how a machine reaches this host's loopback address.
const host = "10.0.2.2"

// timeServer answers machines that ask host for the time (NTP, RFC 5905), until
// the end of the test.
func timeServer(t testing.TB) {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:123")
	if err != nil {
		t.Fatalf("the time server of the test: %v", err)
	}

	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = c.Close()
		<-ended
	})

	go func() {
		defer close(ended)
		for in := make([]byte, 512); ; {
			n, from, err := c.ReadFrom(in)
			if err != nil {
				return
			}
			if n >= 48 {
				_, _ = c.WriteTo(timeReply(in, time.Now()), from)
			}
		}
	}()
}

// timeReply is the answer of a server with a clock of its own.
func timeReply(request []byte, now time.Time) []byte {
	const since1900 = 2208988800
	at := uint64(now.Unix()+since1900)<<32 | uint64(now.Nanosecond())<<32/1e9
	out := []byte{4<<3 | 4, 1, request[2], 0xec, 0, 0, 0, 0, 0, 0, 0, 16, 'T', 'E', 'S', 'T'}
	out = binary.BigEndian.AppendUint64(out, at)
	out = append(out, request[40:48]...) // when the machine asked
	out = binary.BigEndian.AppendUint64(out, at)
	return binary.BigEndian.AppendUint64(out, at)
}
