package event

import "saltern/master/value"

// Weight returns approximately how many bytes data takes in memory.
func Weight(data *value.Map) int { return weightOf(data) }

// nodeWeight is the memory in bytes that a value takes in addition to its content.
const nodeWeight = 48

func weightOf(v any) int {
	n := nodeWeight
	switch v := v.(type) {
	case string:
		n += len(v)
	case []byte:
		n += len(v)
	case []any:
		for _, x := range v {
			n += weightOf(x)
		}
	case []string:
		for _, s := range v {
			n += nodeWeight + len(s)
		}
	case *value.Map:
		for k, x := range v.All() {
			n += weightOf(k) + weightOf(x)
		}
	}

	return n
}

// maxWaiting is how many bytes of events may wait for one subscription.
const maxWaiting = 64 << 20

// backlog counts the bytes of the events that wait in a channel. The receivers do not report which
// events they have received, so backlog derives that from the length of the channel.
type backlog struct {
	weights []int // weights of the events put into the channel, the latest last
	bytes   int
}

// release stops counting the events that were received. waiting is the length of the channel.
func (b *backlog) release(waiting int) {
	gone := len(b.weights) - waiting
	for _, w := range b.weights[:gone] {
		b.bytes -= w
	}
	b.weights = b.weights[gone:]
	if waiting == 0 {
		b.weights = nil
	}
}

func (b *backlog) add(weight int) {
	b.weights = append(b.weights, weight)
	b.bytes += weight
}
