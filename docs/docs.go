// Package docs holds pages of the documentation that programs show.
package docs

import _ "embed"

// Troubleshooting is the page about problems and their codes, in Markdown.
//
//go:embed troubleshooting.md
var Troubleshooting string
