package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// Config configures a Publisher.
type Config struct {
	// Keys returns the publish key and the next serial under that key. A serial of 0 is left out of
	// the load, which is necessary if several masters publish with one key. Required.
	Keys func() (key crypt.Key, serial int64, err error)
	// Sign signs data with the key by which minions recognise the master. It may be nil: publishes
	// are not signed (Salt's sign_pub_messages: False).
	Sign func(algo string, data []byte) ([]byte, error)
	// Algorithm is Salt's publish_signing_algorithm. "" means PKCS1v15-SHA1.
	Algorithm string
	// Pub is the PUB socket. Required.
	Pub Socket
	// Filtering is Salt's zmq_filtering: a load for a list of minions is sent under the topic of
	// each of these minions, any other load under "broadcast".
	Filtering bool
	// OrderMasters is Salt's order_masters. With Filtering and OrderMasters, loads for lists of
	// minions are sent to syndics, too.
	OrderMasters bool
	// Manager returns the minion that manages a resource, or "" for an id that is no resource. It
	// may be nil: there are no resources.
	Manager func(id string) string

	// KeepCount, KeepAge and KeepBytes bound the stored publishes: their number, their age and the
	// bytes of their payloads. 0 means 256, 2 minutes and 8 MiB. If KeepCount is negative, no
	// publishes are stored.
	KeepCount int
	KeepAge   time.Duration
	KeepBytes int
	// Now is the clock. It may be nil: time.Now.
	Now func() time.Time
}

// Socket is the part of a *zmtp.Pub that a Publisher uses.
type Socket interface {
	Publish(ctx context.Context, frames ...[]byte) error
	SendTo(ctx context.Context, id uint64, frames ...[]byte) bool
}

var _ Socket = (*zmtp.Pub)(nil)

// Publisher sends loads to minions. All methods are safe for concurrent use.
type Publisher struct {
	cfg     Config
	history history

	mu   sync.Mutex
	last chan struct{} // closed when the load with the last assigned serial was sent

	timesMu   sync.Mutex
	times     [maxTimes]time.Time // ring buffer with the times of the last publications
	timeCount int                 // number of times stored since the start

	published, resent, failed atomic.Uint64
}

// New returns a Publisher.
func New(cfg Config) (*Publisher, error) {
	if cfg.Keys == nil || cfg.Pub == nil {
		return nil, errors.New("publish: no keys or no socket")
	}

	cfg.Algorithm = cmp.Or(cfg.Algorithm, crypt.PKCS1SHA1)
	cfg.KeepCount = cmp.Or(cfg.KeepCount, 256)
	cfg.KeepAge = cmp.Or(cfg.KeepAge, 2*time.Minute)
	cfg.KeepBytes = cmp.Or(cfg.KeepBytes, 8<<20)

	if cfg.Now == nil {
		cfg.Now = time.Now
	}

	sent := make(chan struct{})
	close(sent)
	return &Publisher{cfg: cfg, last: sent,
		history: history{count: cfg.KeepCount, age: cfg.KeepAge, bytes: cfg.KeepBytes}}, nil
}

// Stats are the counters since the start.
type Stats struct {
	Published uint64 // loads sent to all subscribers
	Resent    uint64 // loads that Resend sent to one subscriber
	Failed    uint64 // loads that could not be sent
	Kept      int    // publishes that are stored now
}

// Publish sends a load to the minions. matched lists the ids that the target selects; only
// Filtering uses them. Publish does not change the load. The caller must not change the values in
// the load while the load may be sent again (KeepAge). If the load contains a serial, as a load
// from another master does, Publish replaces that serial. When Publish returns, the load was passed
// to the shards of the socket; Publish does not wait for any minion.
func (p *Publisher) Publish(ctx context.Context, load *value.Map, matched []string) error {
	kept := Recent{JID: load.Str("jid"), Load: load.Clone(), Matched: matched}
	return p.publish(ctx, kept, kept)
}

// Republish publishes the earlier publication r a second time to all subscribers, and records r as
// published now. It sends replacement, which is r or the result of [Publisher.Narrow] for the
// minions that still need r.
func (p *Publisher) Republish(ctx context.Context, r, replacement Recent) error {
	r.payload = nil
	return p.publish(ctx, r, replacement)
}

// publish sends outgoing to all subscribers, and records recent as the publication.
func (p *Publisher) publish(ctx context.Context, recent, outgoing Recent) error {
	topics := p.topicsOf(outgoing.Load, outgoing.Matched)
	err := p.sendInOrder(ctx, outgoing, func(payload []byte, key crypt.Key, serial int64) (err error) {
		// Record the publication before sending it. So a minion that subscribes during the
		// transmission gets the job by the transmission, by a resend, or by both. The minion
		// ignores a second copy.
		r := recent
		r.At = p.cfg.Now()
		r.size = len(payload)
		if r.Born.IsZero() {
			r.Born = r.At
		}

		p.noteTime(r.At)
		if serial == 0 && recent.Load == outgoing.Load {
			r.payload = payload
			r.key = key
			r.size = 2 * len(payload)
		}

		forget := p.history.addRecent(r)
		defer func() {
			if err != nil {
				forget()
			}
		}()

		if !p.cfg.Filtering {
			return p.cfg.Pub.Publish(ctx, payload)
		}

		for i, topic := range topics {
			if err := p.cfg.Pub.Publish(ctx, topic, payload); err != nil {
				return fmt.Errorf("topic %d of %d: %w", i+1, len(topics), err)
			}
		}

		return nil
	})
	if err != nil {
		return err
	}

	p.published.Add(1)
	return nil
}

// maxTimes is how many publications Passed can count at most.
const maxTimes = 128

func (p *Publisher) noteTime(at time.Time) {
	p.timesMu.Lock()
	defer p.timesMu.Unlock()
	p.times[p.timeCount%maxTimes] = at
	p.timeCount++
}

// Passed returns how many loads were published after a time, at most maxTimes.
func (p *Publisher) Passed(since time.Time) int {
	p.timesMu.Lock()
	defer p.timesMu.Unlock()
	n := 0
	for _, at := range p.times[:min(p.timeCount, maxTimes)] {
		if at.After(since) {
			n++
		}
	}
	return n
}

// errGone means that the connection is closed, or that its queue is full.
var errGone = errors.New("publish: subscriber is gone or its queue is full")

// Resend sends a recent publish to the subscriber with this zmtp.Peer.ID. It encrypts the load with
// the current key and a new serial, because a minion drops a load whose serial is not greater than
// the last serial that it received. Other minions never receive the new serial, which does no harm.
// If publishes have no serials, Resend sends the stored payload. A minion ignores a job id that it
// has already run.
func (p *Publisher) Resend(ctx context.Context, subscriber uint64, r Recent) error {
	err := p.sendInOrder(ctx, r, func(payload []byte, _ crypt.Key, _ int64) error {
		frames := [][]byte{payload}
		if p.cfg.Filtering {
			frames = [][]byte{[]byte(topicBroadcast), payload}
		}

		if !p.cfg.Pub.SendTo(ctx, subscriber, frames...) {
			return errGone
		}

		return nil
	})
	if err == nil {
		p.resent.Add(1)
	}

	return err
}

// Narrow returns a recent publish with another target. ids are the minions that the new target
// selects. The result may be sent as often as r.
func (p *Publisher) Narrow(r Recent, tgt any, typ string, ids []string) (Recent, error) {
	load := r.Load.Clone()
	load.Set("tgt", tgt)
	load.Set("tgt_type", typ)
	r.Load = load
	r.Matched = ids
	r.payload = nil
	key, serial, err := p.cfg.Keys()
	if err == nil && serial == 0 {
		r.key = key
		r.payload, err = p.wrapLoad(load, key, 0)
	}

	if err != nil {
		return r, fmt.Errorf("aim a publish at others: %w", err)
	}

	return r, nil
}

// Recent returns the stored publishes since a time, the oldest first.
func (p *Publisher) Recent(since time.Time) []Recent {
	return p.history.recentSince(since, p.cfg.Now())
}

// sendInOrder packs a load, and calls send with the payload after all loads with smaller serials
// were sent. If the payload in r is encrypted with the current key, sendInOrder uses that payload.
func (p *Publisher) sendInOrder(ctx context.Context, r Recent, send func([]byte, crypt.Key, int64) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("publish: %w", err)
	}

	p.mu.Lock()
	key, serial, err := p.cfg.Keys()
	if err != nil {
		p.mu.Unlock()
		p.failed.Add(1)
		return fmt.Errorf("publish: get key: %w", err)
	}

	before, sent := p.last, make(chan struct{})
	p.last = sent
	p.mu.Unlock()

	payload := r.payload
	if payload == nil || serial != 0 || key.String() != r.key.String() {
		payload, err = p.wrapLoad(r.Load, key, serial)
	}

	<-before // the wait is short, because no earlier publication waits for a peer
	defer close(sent)
	if err == nil {
		err = send(payload, key, serial)
	}

	if err != nil {
		p.failed.Add(1)
		return fmt.Errorf("publish: %w", err)
	}

	return nil
}

// wrapLoad returns the payload: a map with the encrypted load and a signature over it. Its fields
// are in Salt's order.
func (p *Publisher) wrapLoad(load *value.Map, key crypt.Key, serial int64) ([]byte, error) {
	load = load.Clone()
	load.Delete("serial") // so that Set below adds the new serial as the last field
	if serial != 0 {
		load.Set("serial", serial)
	}

	body, err := msgpack.Marshal(load, msgpack.Raw)
	if err != nil {
		return nil, fmt.Errorf("pack load: %w", err)
	}

	blob := key.Seal(body, "")
	outer := value.NewMap("enc", "aes", "load", blob)
	if p.cfg.Sign != nil {
		sig, err := p.cfg.Sign(p.cfg.Algorithm, blob)
		if err != nil {
			return nil, fmt.Errorf("sign: %w", err)
		}
		outer.Set("sig_algo", p.cfg.Algorithm)
		outer.Set("sig", sig)
	}

	b, err := msgpack.Marshal(outer, msgpack.Raw)
	if err != nil {
		return nil, fmt.Errorf("pack envelope: %w", err)
	}

	return b, nil
}
