// Package form puts messages into the forms of their destinations: JSON for web hooks, mail, lines
// for syslogs. It does no input or output.
//
// All texts of a message are of one line, and hold no control characters: see alert.Alert. This
// package escapes what has a meaning in a form (the marks of Slack, the headers of mail), so that
// the id of a minion or the comment of a state cannot link, mention, or add a header.
package form

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/internal/printable"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
)

// Bounds of a message's text.
const (
	maxListed = 20      // alerts that a summary lists
	maxText   = 8 << 10 // bytes of the text for a chat
)

// Title returns a message in one line.
func Title(m *alert.Message) string {
	if !m.Summary() {
		return m.Alerts[0].Title
	}

	kinds := map[rules.Kind]int{}
	for _, a := range m.Alerts {
		kinds[a.Kind]++
	}
	var counts []string
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), func(a, b rules.Kind) int {
		return cmp.Or(kinds[b]-kinds[a], cmp.Compare(a, b))
	}) {
		counts = append(counts, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	return fmt.Sprintf("%d messages were held back: %s", len(m.Alerts), strings.Join(counts, ", "))
}

// Lines returns what a message says below its title.
func Lines(m *alert.Message) (lines []string) {
	if m.Summary() {
		for _, a := range m.Alerts[:min(len(m.Alerts), maxListed)] {
			lines = append(lines, a.Time.Format(time.RFC3339)+" "+a.Title)
		}
		if more := len(m.Alerts) - maxListed; more > 0 {
			lines = append(lines, fmt.Sprintf("and %d more", more))
		}
	} else {
		lines = append(lines, m.Alerts[0].Lines...)
		lines = append(lines, facts(&m.Alerts[0])...)
	}

	if m.Repeated > 0 {
		lines = append(lines, fmt.Sprintf("%d like this were left out since the last message about it", m.Repeated))
	}
	if m.More > 0 {
		lines = append(lines, fmt.Sprintf("%d more wait for the next summary", m.More))
	}
	if !m.Until.IsZero() {
		lines = append(lines, "the limit of messages is reached: further ones are held back until "+
			m.Until.UTC().Format(time.RFC3339)+", and follow as a summary")
	}
	return lines
}

// facts returns where and when something happened.
func facts(a *alert.Alert) []string {
	at := a.Time.Format(time.RFC3339)
	if a.Node != "" {
		at += ", recorded by " + a.Node
	}
	lines := []string{at}
	if a.JID != "" {
		job := "job " + a.JID
		if a.User != "" {
			job += " of " + a.User
		}
		lines = append(lines, job)
	}
	return lines
}

// plain returns title and lines, cut to maxText.
func plain(m *alert.Message) string {
	return printable.Clip(Title(m)+"\n"+strings.Join(Lines(m), "\n"), maxText)
}

// Body returns the JSON that a web hook gets.
func Body(m *alert.Message, f rules.Form) ([]byte, error) {
	var body any
	switch f {
	case rules.Slack:
		body = slack(m)
	case rules.Teams:
		body = teams(m)
	default:
		body = generic(m)
	}

	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("put a message into JSON: %w", err)
	}
	return text, nil
}

// genericBody is the JSON object of the form generic. Fields are added, never renamed or removed.
type genericBody struct {
	ID       string        `json:"id"`
	Rule     string        `json:"rule"`
	Title    string        `json:"title"`
	Lines    []string      `json:"lines"`
	Count    int           `json:"count"` // alerts in this message
	Alerts   []alert.Alert `json:"alerts"`
	Repeated int           `json:"repeated"`
	Waiting  int           `json:"waiting"`
	HeldTill *time.Time    `json:"heldUntil,omitempty"`
}

func generic(m *alert.Message) genericBody {
	body := genericBody{
		ID:       m.ID,
		Rule:     m.Rule,
		Title:    Title(m),
		Lines:    Lines(m),
		Count:    len(m.Alerts),
		Alerts:   m.Alerts[:min(len(m.Alerts), maxListed)],
		Repeated: m.Repeated,
		Waiting:  m.More,
	}
	if !m.Until.IsZero() {
		body.HeldTill = &m.Until
	}
	return body
}

// slackEscapes are the characters that Slack gives a meaning to
// (https://docs.slack.dev/messaging/formatting-message-text#escaping). Without "<" nothing links or
// mentions.
var slackEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func slack(m *alert.Message) any {
	return map[string]any{"text": slackEscapes.Replace(plain(m)), "mrkdwn": false}
}

// teams returns an adaptive card. Its text runs are not Markdown, unlike its text blocks
// (https://learn.microsoft.com/en-us/adaptive-cards/authoring-cards/text-features).
func teams(m *alert.Message) any {
	type object = map[string]any
	run := func(text string, bold bool) object {
		inline := object{"type": "TextRun", "text": text}
		if bold {
			inline["weight"] = "bolder"
		}
		return object{"type": "RichTextBlock", "inlines": []any{inline}}
	}

	title, rest, _ := strings.Cut(plain(m), "\n")
	rows := []any{run(title, true)}
	for line := range strings.SplitSeq(rest, "\n") {
		rows = append(rows, run(line, false))
	}
	return object{
		"type": "message",
		"attachments": []any{object{
			"contentType": "application/vnd.microsoft.card.adaptive",
			"contentUrl":  nil,
			"content": object{
				"$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
				"type":    "AdaptiveCard",
				"version": "1.4",
				"body":    rows,
			},
		}},
	}
}
