package form

import (
	"fmt"
	"strings"
	"time"

	"saltern/internal/printable"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
)

// maxSyslog bounds a line, in bytes. Every syslog takes as many (RFC 5424, section 6.1).
const maxSyslog = 2048

// Severities of RFC 5424.
const (
	severityWarning = 4
	severityInfo    = 6
)

// Local returns a message as /dev/log takes it: a priority, the program, the text.
func Local(m *alert.Message, facility int) []byte {
	return fmt.Appendf(nil, "<%d>saltern: %s", priority(m, facility), oneLine(m))
}

// Remote returns a message in the form of RFC 5424. Its MSGID is the kind.
func Remote(m *alert.Message, facility int, host string, now time.Time) []byte {
	return fmt.Appendf(nil, "<%d>1 %s %s saltern - %s - %s", priority(m, facility),
		now.UTC().Format("2006-01-02T15:04:05.000Z"), host, m.Alerts[0].Kind, oneLine(m))
}

func priority(m *alert.Message, facility int) int {
	severity := severityWarning
	if m.Alerts[0].Kind == rules.Test || m.Alerts[0].Kind == rules.Key {
		severity = severityInfo
	}
	return facility<<3 | severity
}

// oneLine returns the text of a message, and its id, by which a reader recognises a repetition.
func oneLine(m *alert.Message) string {
	text := printable.Brief(Title(m)+"; "+strings.Join(Lines(m), "; "), maxSyslog-300)
	return text + "; id " + m.ID
}
