package zmtp

import "sync"

const (
	maxTopics = 128 // subscriptions of one connection
	maxTopic  = 256 // largest length of a topic in bytes
)

// topics is the set of prefixes that a connection has subscribed to. As in libzmq, it does not
// count how often the connection has subscribed to a topic: a subscriber sends each subscription,
// but cancels a topic only once, when it no longer needs any subscription to that topic. A
// subscription to everything, the usual case, costs no memory.
type topics struct {
	mu  sync.Mutex
	all bool
	set map[string]struct{}
}

func (t *topics) subscribe(topic []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(topic) == 0 {
		t.all = true
		return nil
	}
	if len(topic) > maxTopic {
		return violation("topic of %d bytes", len(topic))
	}

	if _, ok := t.set[string(topic)]; !ok && len(t.set) >= maxTopics {
		return violation("more than %d topics", maxTopics)
	}

	if t.set == nil {
		t.set = map[string]struct{}{}
	}

	t.set[string(topic)] = struct{}{}
	return nil
}

func (t *topics) cancel(topic []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(topic) == 0 {
		t.all = false
		return
	}
	delete(t.set, string(topic))
}

// everything reports whether the connection has subscribed to all messages.
func (t *topics) everything() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// matches appends to dst the messages of ms that the connection has subscribed to.
func (t *topics) matches(dst, ms []*publication) []*publication {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all {
		return append(dst, ms...)
	}
	if len(t.set) == 0 {
		return dst
	}

	for _, m := range ms {
		for topic := range t.set {
			if len(m.topic) >= len(topic) && string(m.topic[:len(topic)]) == topic {
				dst = append(dst, m)
				break
			}
		}
	}

	return dst
}

// everyTopic is the topic list that is shared by all connections whose only subscription is to
// everything.
var everyTopic = []string{""}

// list returns the topics, "" for everything. The caller must not change the list.
func (t *topics) list() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all && len(t.set) == 0 {
		return everyTopic
	}
	var l []string
	if t.all {
		l = append(l, "")
	}
	for topic := range t.set {
		l = append(l, topic)
	}
	return l
}
