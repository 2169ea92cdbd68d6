package settings

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"
)

// Backup has one node of the cluster make backups by itself.
type Backup struct {
	// Every is a duration, or "daily at HH:MM" in UTC; empty: none are made.
	Every string `yaml:"every"`
	// To is the directory for them.
	To string `yaml:"to"`
	// Keep is how many stay there.
	Keep int `yaml:"keep"`
	// Recipients are age public keys; a backup is encrypted for all of them.
	Recipients []string `yaml:"recipients"`
}

// On reports whether backups are made.
func (b Backup) On() bool { return b.Every != "" }

// Bounds of backups.
const (
	minBackupEvery  = time.Hour
	maxBackupEvery  = 31 * 24 * time.Hour
	maxBackupKeep   = 1000
	maxRecipients   = 16
	maxRecipientKey = 4096 // bytes; keys against quantum computers have some 2,000
)

// Schedule is when backups are due. The zero value is midnight UTC of each day.
type Schedule struct {
	Every time.Duration // 0: once a day
	Daily time.Duration // after midnight UTC, with Every 0
}

// After gives the time at which the backup after one of that time is due.
func (s Schedule) After(last time.Time) time.Time {
	if s.Every > 0 {
		return last.Add(s.Every)
	}
	day := 24 * time.Hour
	at := last.UTC().Truncate(day).Add(s.Daily)
	if !at.After(last) {
		at = at.Add(day)
	}
	return at
}

var dailyAt = regexp.MustCompile(`^daily at ([01][0-9]|2[0-3]):([0-5][0-9])$`)

// Schedule reads Every.
func (b Backup) Schedule() (Schedule, error) {
	if m := dailyAt.FindStringSubmatch(b.Every); m != nil {
		hours, _ := strconv.Atoi(m[1]) // digits
		minutes, _ := strconv.Atoi(m[2])
		return Schedule{Daily: time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute}, nil
	}
	every, err := time.ParseDuration(b.Every)
	if err != nil {
		return Schedule{}, fmt.Errorf(`%q is neither a duration (24h) nor "daily at HH:MM" (UTC)`, b.Every)
	}
	if every < minBackupEvery || every > maxBackupEvery {
		return Schedule{}, fmt.Errorf("%s is not between 1h and 744h (31 days)", every)
	}
	return Schedule{Every: every}, nil
}

// Keys reads Recipients.
func (b Backup) Keys() ([]age.Recipient, error) {
	var out []age.Recipient
	for _, text := range b.Recipients {
		if len(text) > maxRecipientKey {
			return nil, fmt.Errorf("a key of %d bytes is none of age's", len(text))
		}
		list, err := age.ParseRecipients(strings.NewReader(text))
		if err != nil || len(list) != 1 {
			return nil, fmt.Errorf("%.70q is not an age public key (age1...; age-keygen makes one)", text)
		}
		out = append(out, list[0])
	}
	return out, nil
}

// backupFaults lists what is wrong below backup.
func (s *Settings) backupFaults() (out []error) {
	bad := func(format string, args ...any) { out = append(out, fmt.Errorf(format, args...)) }
	b := s.Backup
	if b.Keep < 1 || b.Keep > maxBackupKeep {
		bad("backup.keep: %d is not between 1 and %d", b.Keep, maxBackupKeep)
	}
	if _, err := b.Keys(); err != nil {
		bad("backup.recipients: %w", err)
	}
	if len(b.Recipients) > maxRecipients {
		bad("backup.recipients: more than %d", maxRecipients)
	}
	if b.To != "" {
		if !filepath.IsAbs(b.To) || filepath.Clean(b.To) == "/" || strings.ContainsAny(b.To, "\n\x00") {
			bad("backup.to: %q is not an absolute path below /", b.To)
		}
		for key, dir := range map[string]string{"storage.path": s.Storage.Path, "storage.bricks": s.Storage.Bricks} {
			if rel, err := filepath.Rel(dir, b.To); err == nil && filepath.IsLocal(rel) {
				bad("backup.to: %s lies in %s (%s): who loses that loses the backups as well", b.To, key, dir)
			}
		}
	}
	if !b.On() {
		if b.To != "" || len(b.Recipients) > 0 {
			bad(`backup.every: is needed (24h, or "daily at 02:30"): without it no backup is made`)
		}
		return out
	}
	if _, err := b.Schedule(); err != nil {
		bad("backup.every: %w", err)
	}
	if b.To == "" {
		bad("backup.to: is needed: the directory for the backups")
	}
	if len(b.Recipients) == 0 {
		bad("backup.recipients: is needed: age public keys, for which the backups are encrypted; age-keygen makes a pair, keep its secret key elsewhere")
	}
	return out
}
