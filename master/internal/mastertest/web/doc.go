// Package web tests salt-api and its console beside a master.
package web
