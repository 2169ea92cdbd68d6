package alert

import "time"

// Message is what is sent to a destination: one alert, or several at once as a summary.
type Message struct {
	// ID is the same when a message is sent again. Receivers recognise a repetition by it.
	ID     string
	Rule   string
	To     string
	Alerts []Alert
	// Repeated is how many alerts with the key of the only alert were left out since the last
	// message about it. It is 0 for a summary.
	Repeated int
	// Until is the time before which further messages are held back, because this message is the last
	// that Rule.Limit permits. It may be the zero time: more messages are permitted.
	Until time.Time
	// More is how many alerts wait for a further summary, because this one is full.
	More int
}

// Summary reports whether a message is about several alerts that were held back.
func (m *Message) Summary() bool { return len(m.Alerts) > 1 }
