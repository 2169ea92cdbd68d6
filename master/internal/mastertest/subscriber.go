package mastertest

import (
	"saltern/master/zmtp"
	"saltern/test/await"
	"saltern/test/check"
)

// Subscriber is a minion's connection to the publish port.
type Subscriber struct {
	Master *Master
	s      *zmtp.Sub
}

// Subscribe connects to the publish port, and waits until the master has registered the
// subscription.
func (r *Master) Subscribe() *Subscriber {
	r.T.Helper()
	before := len(r.Parts.Publisher.Subscribers())
	s, err := zmtp.DialSub(await.Context(r.T), r.PublishAddress, zmtp.DialConfig{}, "")
	check.Must(r.T, err)
	r.T.Cleanup(s.Close)
	await.That(r.T, "subscription", func() bool {
		subs := r.Parts.Publisher.Subscribers()
		n := 0
		for _, s := range subs {
			if len(s.Topics) > 0 {
				n++
			}
		}

		return n > before
	})

	return &Subscriber{r, s}
}

// Published returns the payloads that arrived since the last call.
func (s *Subscriber) Published() [][]byte {
	s.Master.T.Helper()
	mark := "mark " + NewNonce()
	check.Must(s.Master.T, s.Master.Parts.Publisher.Publish(await.Context(s.Master.T), []byte(mark)))
	var out [][]byte
	for {
		f, err := s.s.Next(await.Context(s.Master.T))
		check.Must(s.Master.T, err)
		if string(f[0]) == mark {
			return out
		}
		out = append(out, f[0])
	}
}
