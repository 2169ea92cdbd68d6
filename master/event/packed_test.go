package event

import (
	"context"
	"net"
	"strings"
	"testing"

	"saltern/master/value"
)

// NextPacked reads events from all forms of a frame, in pieces of any size, and does not decode
// data before a caller asks for it.
func TestPacked(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, prefix := range []bool{false, true} {
		var stream []byte
		for _, data := range []*value.Map{value.NewMap("a", int64(1)), value.NewMap("a", long),
			value.NewMap("a", strings.Repeat(long, 300))} {
			frame, _, err := packFrame("salt/x", data, 0)
			if err != nil {
				t.Fatal(err)
			}

			if !prefix {
				frame = frame[prefixLen:]
			}

			stream = append(stream, frame...)
		}

		bad, _, err := frameBody([]byte("salt/bad\n\n\xc1"))
		if err != nil {
			t.Fatal(err)
		}

		if !prefix {
			bad = bad[prefixLen:]
		}

		stream = append(stream, bad...)
		for _, piece := range []int{1, 7, len(stream)} {
			if piece == 1 && prefix {
				continue // the same code, and slow
			}

			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				for at := 0; at < len(stream); at += piece {
					if _, err := theirs.Write(stream[at:min(at+piece, len(stream))]); err != nil {
						return
					}
				}
			}()

			l := &Listener{conn: ours}
			for i := range 4 {
				p, err := l.NextPacked(context.Background())
				if err != nil {
					t.Fatalf("prefix %v, pieces of %d: event %d: %v", prefix, piece, i, err)
				}

				e, err := p.Event()
				if (err != nil) != (i == 3) ||
					p.Tag != map[bool]string{
						true:  "salt/bad",
						false: "salt/x",
					}[i == 3] || i == 1 && e.Data.Str("a") != long {
					t.Errorf("prefix %v, pieces of %d: event %d: %v %v", prefix, piece, i, p.Tag, err)
				}
			}

			l.Close()
		}
	}
}
