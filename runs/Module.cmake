# The report's style sheet and script travel inside the program.
include(${CMAKE_SOURCE_DIR}/cmake/EmbedText.cmake)
hay_embed_text(runs report_assets ${CMAKE_SOURCE_DIR}/runs/report/site/site.css ${CMAKE_SOURCE_DIR}/runs/report/site/site.js)
