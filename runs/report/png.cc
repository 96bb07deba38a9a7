#include <cairo.h>
#include <librsvg/rsvg.h>

#include <cmath>
#include <memory>

#include "base/error.h"
#include "runs/report/heatmap.h"

namespace hayfork::runs {
namespace {

template <typename T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* p) const { kFree(p); }
};
void unref(RsvgHandle* handle) {
  g_object_unref(handle);
}
using Handle = std::unique_ptr<RsvgHandle, Freed<RsvgHandle, unref>>;
using Surface = std::unique_ptr<cairo_surface_t, Freed<cairo_surface_t, cairo_surface_destroy>>;
using Cairo = std::unique_ptr<cairo_t, Freed<cairo_t, cairo_destroy>>;

[[noreturn]] void fail(GError* error, const char* what) {
  const std::string why = error != nullptr ? error->message : "";
  if (error != nullptr) g_error_free(error);
  throw Error(ErrorCode::corrupt, ErrorSubject::data, what, {"SVG", why, ""});
}

cairo_status_t append(void* out, const unsigned char* data, unsigned int n) {
  static_cast<std::string*>(out)->append(reinterpret_cast<const char*>(data), n);
  return CAIRO_STATUS_SUCCESS;
}

}  // namespace

std::string svg_to_png(const std::string& svg, double scale) {
  GError* error = nullptr;
  const Handle handle(rsvg_handle_new_from_data(reinterpret_cast<const guint8*>(svg.data()), svg.size(), &error));
  if (!handle) fail(error, "the picture cannot be drawn");
  gdouble width = 0, height = 0;
  if (!rsvg_handle_get_intrinsic_size_in_pixels(handle.get(), &width, &height) || !(width > 0) || !(height > 0))
    fail(nullptr, "the picture has no size");
  if (width * scale * height * scale > 1e8)
    throw Error(ErrorCode::resource, ErrorSubject::memory, "the picture is too large for a PNG",
                {"", "more than 100 million pixels", "write it as .svg"});
  const Surface surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(std::ceil(width * scale)),
                                                   static_cast<int>(std::ceil(height * scale))));
  const Cairo cairo(cairo_create(surface.get()));
  cairo_set_source_rgb(cairo.get(), 1, 1, 1);
  cairo_paint(cairo.get());
  cairo_scale(cairo.get(), scale, scale);
  const RsvgRectangle view{0, 0, width, height};
  if (!rsvg_handle_render_document(handle.get(), cairo.get(), &view, &error))
    fail(error, "the picture cannot be drawn");
  cairo_surface_flush(surface.get());
  std::string png;
  const cairo_status_t status = cairo_surface_write_to_png_stream(surface.get(), append, &png);
  if (status != CAIRO_STATUS_SUCCESS)
    throw Error(ErrorCode::resource, ErrorSubject::memory, "a PNG cannot be made",
                {"", cairo_status_to_string(status), ""});
  return png;
}

}  // namespace hayfork::runs
