// Package web tests salt-api and its console together with a master.
package web
