package form

import (
	"bytes"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"strings"
	"time"

	"saltern/internal/printable"
	"saltern/master/internal/notify/alert"
)

// KeyHeader is the header with the id of a message, by which a receiver recognises one that is sent
// again (draft-ietf-httpapi-idempotency-key-header).
const KeyHeader = "Idempotency-Key"

// maxSubject bounds the subject of a mail, in bytes before it is encoded.
const maxSubject = 200

// Mail returns a message as mail (RFC 5322). from and to are plain addresses in ASCII.
func Mail(m *alert.Message, from string, to []string, now time.Time) ([]byte, error) {
	_, domain, _ := strings.Cut(from, "@")
	subject := mime.QEncoding.Encode("utf-8", printable.Brief(Title(m), maxSubject))

	var out bytes.Buffer
	for _, header := range [][2]string{
		{"From", from},
		{"To", strings.Join(to, ",\r\n ")},
		{"Subject", subject},
		{"Date", now.Format(time.RFC1123Z)},
		{"Message-ID", "<" + m.ID + "@" + domain + ">"},
		{KeyHeader, m.ID},
		{"Auto-Submitted", "auto-generated"}, // RFC 3834: no answers of absent people
		{"MIME-Version", "1.0"},
		{"Content-Type", "text/plain; charset=utf-8"},
		{"Content-Transfer-Encoding", "quoted-printable"},
	} {
		fmt.Fprintf(&out, "%s: %s\r\n", header[0], header[1])
	}
	out.WriteString("\r\n")

	body := quotedprintable.NewWriter(&out)
	text := Title(m) + "\r\n\r\n" + strings.Join(Lines(m), "\r\n") + "\r\n"
	_, err := body.Write([]byte(text))
	if err == nil {
		err = body.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("encode a mail: %w", err)
	}
	return out.Bytes(), nil
}
