package settings

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"
)

// Backup configures scheduled backups, which one node of the cluster makes at a time.
type Backup struct {
	// Every is a duration, or "daily at HH:MM" in UTC. If it is empty, the node makes no backups.
	Every string `yaml:"every"`
	// To is the directory for backups, or s3://BUCKET[/PREFIX].
	To string `yaml:"to"`
	// S3 configures the service of a bucket.
	S3 S3 `yaml:"s3"`
	// Keep is how many backups are kept in To.
	Keep int `yaml:"keep"`
	// Recipients are age public keys. Each backup is encrypted for all of them.
	Recipients []string `yaml:"recipients"`
}

// S3 configures a service for buckets with the API of AWS S3.
type S3 struct {
	// Endpoint is the service's address. Empty: AWS.
	Endpoint string `yaml:"endpoint"`
	// Region is the bucket's region. Empty: us-east-1, which services other than AWS accept.
	Region string `yaml:"region"`
	// Credentials is the path of a file with keys in the format of the AWS tools.
	Credentials string `yaml:"credentials"`
	// Role selects the keys of the role that the machine has on EC2, instead of a file.
	Role bool `yaml:"role"`
	// CA is the path of a file with certificates that are trusted instead of the system's.
	CA string `yaml:"ca"`
}

// Bucket parses To. ok is false if To is not a bucket.
func (b Backup) Bucket() (name, prefix string, ok bool) {
	rest, ok := strings.CutPrefix(b.To, "s3://")
	if ok {
		name, prefix, _ = strings.Cut(rest, "/")
	}
	return name, prefix, ok
}

// On reports whether scheduled backups are made.
func (b Backup) On() bool { return b.Every != "" }

// Bounds of backups.
const (
	minBackupEvery  = time.Hour
	maxBackupEvery  = 31 * day
	maxBackupKeep   = 1000
	maxRecipients   = 16
	maxRecipientKey = 4096 // bytes; keys against quantum computers have some 2,000
)

// Schedule says when backups are due. The zero value means midnight UTC of each day.
type Schedule struct {
	Every time.Duration // interval; 0: once a day
	Daily time.Duration // time after midnight UTC; only if Every is 0
}

// After returns the time at which the next backup is due. last is the time of the last backup.
func (s Schedule) After(last time.Time) time.Time {
	if s.Every > 0 {
		return last.Add(s.Every)
	}
	at := last.UTC().Truncate(day).Add(s.Daily)
	if !at.After(last) {
		at = at.Add(day)
	}
	return at
}

var dailyAt = regexp.MustCompile(`^daily at ([01][0-9]|2[0-3]):([0-5][0-9])$`)

// Schedule parses Every.
func (b Backup) Schedule() (Schedule, error) {
	if m := dailyAt.FindStringSubmatch(b.Every); m != nil {
		hours, _ := strconv.Atoi(m[1]) // the pattern permits only digits
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

// Keys parses Recipients.
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

// backupFaults returns the faults of the keys below backup.
func (s *Settings) backupFaults() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
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

	errs = append(errs, b.bucketFaults()...)
	if _, _, bucket := b.Bucket(); b.To != "" && !bucket {
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
		return errs
	}

	if _, err := b.Schedule(); err != nil {
		bad("backup.every: %w", err)
	}

	if b.To == "" {
		bad("backup.to: is needed: the directory for the backups, or s3://BUCKET")
	}

	if len(b.Recipients) == 0 {
		bad("backup.recipients: is needed: age public keys, for which the backups are encrypted; " +
			"age-keygen makes a pair, keep its secret key elsewhere")
	}

	return errs
}

var (
	bucketName   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	bucketPrefix = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]{0,99})(/[A-Za-z0-9][A-Za-z0-9._-]{0,99}){0,9}$`)
	regionName   = regexp.MustCompile(`^[a-z0-9-]{0,40}$`)
)

// bucketFaults returns the faults of the settings of a bucket.
func (b Backup) bucketFaults() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	name, prefix, bucket := b.Bucket()
	if !bucket {
		if b.S3 != (S3{}) {
			bad("backup.s3: is for a backup.to that is s3://BUCKET")
		}
		return errs
	}

	if !bucketName.MatchString(name) || prefix != "" && !bucketPrefix.MatchString(prefix) {
		bad("backup.to: %.100q is not s3://BUCKET or s3://BUCKET/PREFIX", b.To)
	}

	if b.S3.Endpoint != "" {
		if u, err := url.Parse(b.S3.Endpoint); err != nil || u.Scheme != "https" && u.Scheme != "http" ||
			u.Host == "" || u.User != nil || len(b.S3.Endpoint) > maxURL {
			bad("backup.s3.endpoint: %.70q is not the address of a service (https://s3.example.org)", b.S3.Endpoint)
		}
	}

	if !regionName.MatchString(b.S3.Region) {
		bad("backup.s3.region: %.70q is not the name of a region", b.S3.Region)
	}

	for key, path := range map[string]string{"credentials": b.S3.Credentials, "ca": b.S3.CA} {
		if path != "" && !filepath.IsAbs(path) {
			bad("backup.s3.%s: %.100q is not an absolute path", key, path)
		}
	}

	switch {
	case b.S3.Role && b.S3.Credentials != "":
		bad("backup.s3.role: is instead of backup.s3.credentials; leave one of them out")
	case !b.S3.Role && b.S3.Credentials == "":
		bad("backup.s3.credentials: is needed: a file of mode 600 with aws_access_key_id and " +
			"aws_secret_access_key; on EC2 instead, role: true, with an instance profile")
	}

	return errs
}
