# The Java client: included by the Makefile of the repository, and run from there.

HAS_MVN := $(shell command -v mvn 2>/dev/null)
HAS_JAVAC := $(shell command -v javac 2>/dev/null)

.PHONY: clients-java
clients-java: ## Builds, checks and tests the Java client
ifeq ($(and $(HAS_MVN),$(HAS_JAVAC)),)
	@echo "Skipped: the Java client needs a JDK from 17 on and Maven, which are not here."
	@test "$$CI" != true || { echo "CI must not skip it: install a JDK and Maven."; exit 1; }
else
	@# Quiet, but for warnings, which fail the compiler. `mvn spotless:apply` mends what the formatter finds.
	@cd clients/java && mvn -B -ntp -Dorg.slf4j.simpleLogger.defaultLogLevel=warn --strict-checksums clean verify
endif
