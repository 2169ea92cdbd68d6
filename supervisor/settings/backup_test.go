package settings

import (
	"strings"
	"testing"
	"time"
)

const someKey = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

func TestBackupFaults(t *testing.T) {
	whole := "backup: {every: 24h, to: /mnt/nas, recipients: [" + someKey + "]}"
	s, err := Parse([]byte(whole), "f", "n")
	if err != nil || !s.Backup.On() || s.Backup.Keep != 14 {
		t.Fatalf("%+v %v", s, err)
	}

	for text, want := range map[string]string{
		"backup: {to: /mnt/nas}": "backup.every: is needed",
		"backup: {recipients: [" + someKey +
			"]}": "backup.every: is needed",
		"backup: {every: 24h, recipients: [" + someKey +
			"]}": "backup.to: is needed",
		"backup: {every: 24h, to: /mnt/nas}": "backup.recipients: is needed",
		"backup: {every: 24h, to: nas, recipients: [" + someKey +
			"]}": `backup.to: "nas"`,
		"backup: {every: 24h, to: /, recipients: [" + someKey +
			"]}": `backup.to: "/"`,
		"backup: {every: 24h, to: /var/lib/saltern/cluster/srv, recipients: [" + someKey +
			"]}": "lies in storage.path",
		"backup: {every: 10s, to: /mnt/nas, recipients: [" + someKey +
			"]}": "backup.every: 10s is not between",
		"backup: {every: daily, to: /mnt/nas, recipients: [" + someKey +
			"]}": `"daily at HH:MM"`,
		"backup: {every: daily at 24:00, to: /mnt/nas, recipients: [" + someKey +
			"]}": `"daily at HH:MM"`,
		"backup: {every: 24h, to: /mnt/nas, keep: 0, recipients: [" + someKey +
			"]}": "backup.keep: 0",
		"backup: {every: 24h, to: /mnt/nas, recipients: [AGE-SECRET-KEY-1]}": "backup.recipients: ",
		"backup: {every: 24h, to: /mnt/nas, recipients: [\"" + someKey + "\\n" + someKey +
			"\"]}": "backup.recipients: ",
		"backup: {every: 24h, to: /mnt/nas, recipients: [" + strings.Repeat(someKey+", ", 17) +
			"]}": "more than 16",
		"backup: {every: 24h, s4: x}": "field s4 not found",
		"backup: {every: 24h, to: /mnt/nas, recipients: [" + someKey +
			"], s3: {region: x}}": "backup.s3: is for",
		"backup: {every: 24h, to: 's3://B_', recipients: [" + someKey +
			"]}": "backup.to: \"s3://B_\" is not s3://BUCKET",
		"backup: {every: 24h, to: 's3://bucket/../x', recipients: [" + someKey +
			"]}": "backup.to: ",
		"backup: {every: 24h, to: 's3://bucket', recipients: [" + someKey +
			"]}": "backup.s3.credentials: is needed",
		"backup: {every: 24h, to: 's3://bucket', s3: {role: true, credentials: /k}, recipients: [" +
			someKey + "]}": "backup.s3.role: is instead of backup.s3.credentials",
		"backup: {every: 24h, to: 's3://bucket', s3: {role: true}, recipients: [" + someKey + "]}": "",
		"backup: {every: 24h, to: /mnt, s3: {role: true}, recipients: [" + someKey +
			"]}": "backup.s3: is for a backup.to that is s3://BUCKET",
		"backup: {every: 24h, to: 's3://bucket', s3: {credentials: keys}}":          "backup.s3.credentials: \"keys\" is not an absolute path",
		"backup: {every: 24h, to: 's3://bucket', s3: {endpoint: 'https://u:p@h'}}":  "backup.s3.endpoint: ",
		"backup: {every: 24h, to: 's3://bucket', s3: {endpoint: 's3.example.org'}}": "backup.s3.endpoint: ",
	} {
		if _, err := Parse([]byte(text), "f", "n"); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestSchedule(t *testing.T) {
	at := func(s string) time.Time {
		t.Helper()
		out, err := time.Parse("2006-01-02 15:04:05", s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}

	for _, c := range []struct{ every, last, want string }{
		{"24h", "2026-11-24 10:00:07", "2026-11-25 10:00:07"},
		{"90m", "2026-11-24 23:00:00", "2026-11-25 00:30:00"},
		{"daily at 02:30", "2026-11-24 02:29:59", "2026-11-24 02:30:00"},
		{"daily at 02:30", "2026-11-24 02:30:00", "2026-11-25 02:30:00"},
		{"daily at 02:30", "2026-11-24 14:00:00", "2026-11-25 02:30:00"},
		{"daily at 00:00", "2026-12-31 23:59:59", "2027-01-01 00:00:00"},
	} {
		s, err := Backup{Every: c.every}.Schedule()
		if err != nil {
			t.Fatal(err)
		}
		if got := s.After(at(c.last)); !got.Equal(at(c.want)) {
			t.Errorf("%s after %s: %s, want %s", c.every, c.last, got, c.want)
		}
	}
}
